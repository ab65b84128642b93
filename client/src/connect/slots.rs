//! Which node of a cluster serves which slot.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;

use crc::{CRC_16_XMODEM, Crc};
use redis::{Client, ConnectionAddr, ConnectionInfo, FromRedisValue, ParsingError, RedisError, RedisResult};
use redis::{Value, cmd, from_redis_value_ref};

use crate::error::Error;
use crate::sync::lock;

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

/// The slots that redirections have revealed, for connections to one node only.
pub(super) struct SlotCache {
    /// The nodes that the application named, at least one. They differ in host and port only.
    seeds: Vec<ConnectionInfo>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_slot: HashMap<u16, ConnectionAddr>,
    /// All nodes that a redirection has named. A cluster may have moved away from all its seeds.
    discovered: Vec<ConnectionAddr>,
    /// The node to ask about an unknown slot: an index into the seeds followed by the discovered nodes.
    next: usize,
}

impl SlotCache {
    pub fn new(seeds: Vec<ConnectionInfo>) -> Result<Self, Error> {
        if seeds.is_empty() {
            return Err(Error::Invalid(
                "the address of a cluster needs at least one node".into(),
            ));
        }
        Ok(Self {
            seeds,
            known: Mutex::default(),
        })
    }

    pub fn first_seed(&self) -> &ConnectionInfo {
        &self.seeds[0]
    }

    /// The node that serves the key if known, else one that redirects to it.
    pub fn node_for(&self, key: &[u8]) -> ConnectionInfo {
        let known = lock(&self.known);
        let addr = known.by_slot.get(&slot_of(key));
        let addr = addr.unwrap_or_else(|| self.next_to_ask(&known));
        self.first_seed().clone().set_addr(addr.clone())
    }

    /// Asks the cluster for all its slots.
    pub async fn fetch(&self) -> RedisResult<SlotMap> {
        let mut last = io::Error::from(io::ErrorKind::NotConnected).into();
        for _ in 0..self.seeds.len() {
            let addr = self.next_to_ask(&lock(&self.known)).clone();
            match SlotMap::fetch(self.first_seed().clone().set_addr(addr.clone())).await {
                Ok(map) => return Ok(map),
                Err(error) => last = error,
            }
            self.forget(&addr);
        }
        Err(last)
    }

    fn next_to_ask<'a>(&'a self, known: &'a Known) -> &'a ConnectionAddr {
        match self.seeds.get(known.next) {
            Some(seed) => seed.addr(),
            None => &known.discovered[known.next - self.seeds.len()],
        }
    }

    /// Updates the cache from `MOVED slot host:port`.
    pub fn on_redirect(&self, error: &RedisError, sender: &ConnectionAddr) {
        let target = error.redirect_node().filter(|_| error.code() == Some("MOVED"));
        if let Some((target, slot)) = target
            && let Some(addr) = resolve(sender, target)
        {
            self.insert(slot, addr);
        }
    }

    fn insert(&self, slot: u16, addr: ConnectionAddr) {
        let mut known = lock(&self.known);
        if !known.discovered.contains(&addr) && self.seeds.iter().all(|seed| *seed.addr() != addr) {
            known.discovered.push(addr.clone());
        }
        known.by_slot.insert(slot, addr);
    }

    /// A node is unreachable: another one may serve its slots now, and another one is asked.
    pub fn forget(&self, node: &ConnectionAddr) {
        let mut known = lock(&self.known);
        if self.next_to_ask(&known) == node {
            known.next += 1;
        }
        known.by_slot.retain(|_, addr| addr != node);
        known.discovered.retain(|addr| addr != node);
        known.next %= self.seeds.len() + known.discovered.len();
    }
}

/// The primaries of a cluster and their slots, as one node knows them.
pub(super) struct SlotMap {
    node: ConnectionInfo,
    ranges: Vec<SlotRange>,
}

struct SlotRange {
    first: u16,
    last: u16,
    /// Empty when the node that answered does not know its own address.
    host: String,
    port: u16,
}

impl SlotMap {
    async fn fetch(node: ConnectionInfo) -> RedisResult<Self> {
        let client = Client::open(node.clone())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let ranges = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
        Ok(Self { node, ranges })
    }

    pub fn primaries(&self) -> Vec<ConnectionInfo> {
        let mut primaries: Vec<ConnectionAddr> = Vec::new();
        for range in &self.ranges {
            let addr = range.addr(&self.node);
            if !primaries.contains(&addr) {
                primaries.push(addr);
            }
        }
        let info = |addr| self.node.clone().set_addr(addr);
        primaries.into_iter().map(info).collect()
    }

    pub fn node_for(&self, key: &[u8]) -> Result<ConnectionInfo, Error> {
        let slot = slot_of(key);
        let mut ranges = self.ranges.iter();
        let range = ranges.find(|range| (range.first..=range.last).contains(&slot));
        let range = range.ok_or_else(|| {
            Error::Invalid(format!(
                "no node of the cluster serves slot {slot}, to which this key belongs: assign all slots"
            ))
        })?;
        Ok(self.node.clone().set_addr(range.addr(&self.node)))
    }
}

impl SlotRange {
    fn addr(&self, node: &ConnectionInfo) -> ConnectionAddr {
        with_host_and_port(node.addr(), &self.host, self.port)
    }
}

impl FromRedisValue for SlotRange {
    /// `first, last, [host, port, ...] of the primary, those of its replicas ...`
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let incomplete = || ParsingError::from("incomplete reply to CLUSTER SLOTS");
        let fields = Vec::<Value>::from_redis_value(value)?;
        let [first, last, Value::Array(primary), ..] = fields.as_slice() else {
            return Err(incomplete());
        };
        let [host, port, ..] = primary.as_slice() else {
            return Err(incomplete());
        };
        Ok(Self {
            first: from_redis_value_ref(first)?,
            last: from_redis_value_ref(last)?,
            host: from_redis_value_ref::<Option<String>>(host)?.unwrap_or_default(),
            port: from_redis_value_ref(port)?,
        })
    }
}

/// The address of `host:port`, reached in the same way as the node that named it.
fn resolve(sender: &ConnectionAddr, target: &str) -> Option<ConnectionAddr> {
    let (host, port) = target.rsplit_once(':')?;
    Some(with_host_and_port(sender, host, port.parse().ok()?))
}

fn with_host_and_port(like: &ConnectionAddr, new_host: &str, new_port: u16) -> ConnectionAddr {
    let mut addr = like.clone();
    if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut addr {
        // A node that does not know its own name leaves it out.
        if !new_host.is_empty() {
            new_host.clone_into(host);
        }
        *port = new_port;
    }
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(seeds: &[&str]) -> SlotCache {
        let parse = |node: &&str| format!("redis://:secret@{node}/").parse().unwrap();
        SlotCache::new(seeds.iter().map(parse).collect()).unwrap()
    }

    fn addr(node: &str) -> ConnectionAddr {
        resolve(&ConnectionAddr::Tcp(String::new(), 0), node).unwrap()
    }

    fn node_for(slots: &SlotCache, key: &str) -> String {
        slots.node_for(key.as_bytes()).addr().to_string()
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
    fn redirected_slot_is_looked_up_at_its_new_node() {
        let slots = cache(&["one:7000"]);
        assert_eq!(node_for(&slots, "foo"), "one:7000");
        slots.insert(12_182, addr("two:7001"));
        assert_eq!(node_for(&slots, "foo"), "two:7001");
        assert_eq!(node_for(&slots, "bar"), "one:7000");
    }

    #[test]
    fn redirection_without_host_names_the_sender() {
        assert_eq!(resolve(&addr("two:7001"), ":7002"), Some(addr("two:7002")));
        assert_eq!(resolve(&addr("two:7001"), "three:7002"), Some(addr("three:7002")));
        assert_eq!(resolve(&addr("two:7001"), "nonsense"), None);
    }

    #[test]
    fn unreachable_node_is_not_asked_while_there_is_another() {
        let slots = cache(&["one:7000", "two:7001"]);
        slots.insert(12_182, addr("three:7002"));
        slots.forget(&addr("one:7000"));
        assert_eq!(node_for(&slots, "bar"), "two:7001");
        slots.forget(&addr("two:7001"));
        assert_eq!(node_for(&slots, "bar"), "three:7002");
        slots.forget(&addr("three:7002"));
        // Seeds are tried again, discovered nodes are not.
        assert_eq!(node_for(&slots, "foo"), "two:7001");
        slots.forget(&addr("two:7001"));
        assert_eq!(node_for(&slots, "foo"), "one:7000");
    }

    #[test]
    fn losing_another_node_keeps_the_node_to_ask() {
        let slots = cache(&["one:7000"]);
        slots.insert(12_182, addr("two:7001"));
        slots.forget(&addr("two:7001"));
        assert_eq!(node_for(&slots, "foo"), "one:7000");
    }

    #[test]
    fn slot_map_lists_each_primary_once() {
        let range = |first, last, host: &str, port| SlotRange {
            first,
            last,
            host: host.into(),
            port,
        };
        let map = SlotMap {
            node: "redis://:secret@one:7000/".parse().unwrap(),
            ranges: vec![
                range(0, 100, "", 7000),
                range(101, 16_000, "two", 7001),
                range(16_001, 16_200, "one", 7000),
            ],
        };
        let primaries: Vec<String> = map
            .primaries()
            .iter()
            .map(|info| info.addr().to_string())
            .collect();
        assert_eq!(primaries, ["one:7000", "two:7001"]);
        assert_eq!(map.node_for(b"foo").unwrap().addr().to_string(), "two:7001");
        assert!(matches!(
            SlotMap {
                ranges: vec![],
                ..map
            }
            .node_for(b"foo"),
            Err(Error::Invalid(_))
        ));
    }
}
