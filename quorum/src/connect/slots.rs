//! Which node of a cluster serves which slot.

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crc::{CRC_16_XMODEM, Crc};
use redis::from_redis_value_ref;
use redis::{Client, ConnectionAddr, ConnectionInfo, ParsingError, RedisResult, Value, cmd};

use super::discovery::Source;

const SLOTS: u16 = 16_384;
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The cluster slot of a key. Only its hash tag counts, the text between the first braces, if it has one.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[open + 1..][..length])
    });
    CRC.checksum(tag.unwrap_or(key)) % SLOTS
}

/// The nodes that know the slots of a cluster.
pub(super) struct Nodes {
    /// Those that the application named, at least one. They differ in host and port only.
    seeds: Vec<ConnectionInfo>,
    /// Those to ask, the next one first: the seeds, and the primaries that were found last, because a cluster may have
    /// moved away from all its seeds.
    next: VecDeque<ConnectionInfo>,
}

impl Nodes {
    pub fn new(seeds: Vec<ConnectionInfo>) -> Self {
        Self {
            next: seeds.clone().into(),
            seeds,
        }
    }

    /// A node that does not respond is not asked again before the others.
    fn next(&mut self) -> Option<ConnectionInfo> {
        let next = self.next.pop_front()?;
        self.next.push_back(next.clone());
        Some(next)
    }

    fn found(&mut self, map: &SlotMap) {
        let mut nodes = map.primaries();
        nodes.extend_from_slice(&self.seeds);
        self.next = nodes.into();
    }
}

impl Source for Nodes {
    type Answer = Arc<SlotMap>;

    async fn ask(&mut self) -> RedisResult<Arc<SlotMap>> {
        let mut last = io::Error::from(io::ErrorKind::NotConnected).into();
        for _ in 0..self.next.len() {
            let Some(node) = self.next() else { break };
            match SlotMap::fetch(node).await {
                Ok(map) => {
                    self.found(&map);
                    return Ok(Arc::new(map));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The slots of a cluster and their primaries, as one node knows them.
pub(super) struct SlotMap {
    ranges: Vec<(RangeInclusive<u16>, ConnectionInfo)>,
}

impl SlotMap {
    async fn fetch(node: ConnectionInfo) -> RedisResult<Self> {
        let client = Client::open(node.clone())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let reply: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
        Ok(Self::parse(&node, &reply)?)
    }

    /// Ranges of `first, last, [host, port, ...] of the primary, those of its replicas ...`
    fn parse(node: &ConnectionInfo, reply: &[Vec<Value>]) -> Result<Self, ParsingError> {
        let range = |fields: &Vec<Value>| {
            if let [first, last, Value::Array(primary), ..] = &**fields
                && let [host, port, ..] = &**primary
            {
                let slots = from_redis_value_ref(first)?..=from_redis_value_ref(last)?;
                // A node that does not know its own address leaves it out.
                let host: Option<String> = from_redis_value_ref(host)?;
                let addr = with_host_and_port(node.addr(), host, from_redis_value_ref(port)?);
                return Ok((slots, node.clone().set_addr(addr)));
            }
            Err(ParsingError::from("incomplete reply to CLUSTER SLOTS"))
        };
        let ranges = reply.iter().map(range).collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }

    /// Each primary once.
    pub fn primaries(&self) -> Vec<ConnectionInfo> {
        let mut primaries: Vec<ConnectionInfo> = Vec::new();
        for (_, node) in &self.ranges {
            if primaries.iter().all(|other| other.addr() != node.addr()) {
                primaries.push(node.clone());
            }
        }
        primaries
    }

    /// The node that serves a slot, if there is one.
    pub fn node_for(&self, slot: u16) -> Option<ConnectionInfo> {
        let range = self.ranges.iter().find(|(slots, _)| slots.contains(&slot));
        range.map(|(_, node)| node.clone())
    }
}

/// Reached in the same way as the node that named it.
fn with_host_and_port(like: &ConnectionAddr, new_host: Option<String>, new_port: u16) -> ConnectionAddr {
    let mut addr = like.clone();
    if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut addr {
        if let Some(new_host) = new_host.filter(|host| !host.is_empty()) {
            *host = new_host;
        }
        *port = new_port;
    }
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(node: &str) -> ConnectionInfo {
        format!("redis://:secret@{node}/").parse().unwrap()
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Vec<Value> {
        let primary = Value::Array(vec![host, Value::Int(port)]);
        let replica = Value::Array(vec![name("replica"), Value::Int(1)]);
        vec![Value::Int(first), Value::Int(last), primary, replica]
    }

    fn name(host: &str) -> Value {
        Value::BulkString(host.into())
    }

    fn map() -> SlotMap {
        let reply = [
            range(0, 100, Value::Nil, 7000),
            range(101, 16_000, name("two"), 7001),
            range(16_001, 16_200, name(""), 7000),
        ];
        SlotMap::parse(&info("one:7000"), &reply).unwrap()
    }

    fn names(nodes: &[ConnectionInfo]) -> Vec<String> {
        nodes.iter().map(|node| node.addr().to_string()).collect()
    }

    #[test]
    fn slot_of_key_matches_cluster_keyslot() {
        let cases: [(&str, u16); 5] = [
            ("", 0),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}b{c}", 12_182),
            ("{}foo", 9_500),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }

    #[test]
    fn slot_map_lists_each_primary_once() {
        assert_eq!(names(&map().primaries()), ["one:7000", "two:7001"]);
    }

    #[test]
    fn slot_map_finds_primary_of_slot() {
        let node = map().node_for(slot_of("foo")).unwrap();
        assert_eq!(node.addr().to_string(), "two:7001");
        assert_eq!(node.redis_settings().password(), Some("secret"));
        assert!(map().node_for(16_201).is_none());
    }

    #[test]
    fn incomplete_slot_map_is_rejected() {
        assert!(SlotMap::parse(&info("one:7000"), &[vec![Value::Int(0)]]).is_err());
    }

    #[test]
    fn unreachable_node_is_not_asked_again_before_the_others() {
        let mut nodes = Nodes::new(vec![info("one:7000"), info("three:7002")]);
        let mut asked: Vec<_> = (0..3).map(|_| nodes.next().unwrap()).collect();
        assert_eq!(names(&asked), ["one:7000", "three:7002", "one:7000"]);
        // The primaries that one of them named are asked, too, and then the seeds again.
        nodes.found(&map());
        asked = (0..5).map(|_| nodes.next().unwrap()).collect();
        assert_eq!(
            names(&asked),
            ["one:7000", "two:7001", "one:7000", "three:7002", "one:7000"]
        );
    }
}
