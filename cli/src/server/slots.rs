//! Which nodes of a cluster serve its slots.

use std::ops::RangeInclusive;

use redis::{ConnectionInfo, ParsingError, Value, cmd, from_redis_value_ref};

use super::node::{Node, at};
use crate::exit::{Code, Failure};

/// The slots of a cluster and their primaries, as one node knows them.
pub struct SlotMap(Vec<(RangeInclusive<u16>, ConnectionInfo)>);

impl SlotMap {
    pub fn read(node: &mut Node) -> Result<Self, Failure> {
        let reply: Vec<Vec<Value>> = node.query(cmd("CLUSTER").arg("SLOTS"))?;
        Ok(Self::parse(&node.info, &reply).map_err(redis::RedisError::from)?)
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
                let host = host.filter(|host| !host.is_empty());
                return Ok((slots, at(node, host, from_redis_value_ref(port)?)));
            }
            Err(ParsingError::from("incomplete reply to CLUSTER SLOTS"))
        };
        reply.iter().map(range).collect::<Result<_, _>>().map(Self)
    }

    /// Each primary once.
    pub fn primaries(&self) -> Vec<ConnectionInfo> {
        let mut primaries: Vec<ConnectionInfo> = Vec::new();
        for (_, node) in &self.0 {
            if primaries.iter().all(|other| other.addr() != node.addr()) {
                primaries.push(node.clone());
            }
        }
        primaries
    }

    /// The node that serves a slot.
    pub fn node_for(&self, slot: u16) -> Result<&ConnectionInfo, Failure> {
        let range = self.0.iter().find(|(slots, _)| slots.contains(&slot));
        let Some((_, node)) = range else {
            let message = format!(
                "no node of the cluster serves slot {slot}, to which this key belongs: assign all slots"
            );
            return Err(Failure::new(Code::Unavailable, message));
        };
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Vec<Value> {
        let primary = Value::Array(vec![host, Value::Int(port)]);
        let replica = Value::Array(vec![name("replica"), Value::Int(1)]);
        vec![Value::Int(first), Value::Int(last), primary, replica]
    }

    fn name(host: &str) -> Value {
        Value::BulkString(host.into())
    }

    #[test]
    fn slot_map_has_each_primary_once_and_finds_that_of_a_slot() {
        let reply = [
            range(0, 100, Value::Nil, 7000),
            range(101, 16_000, name("two"), 7001),
            range(16_001, 16_200, name(""), 7000),
        ];
        let node = "redis://:secret@one:7000/".parse().unwrap();
        let map = SlotMap::parse(&node, &reply).unwrap();
        let names: Vec<String> = map
            .primaries()
            .iter()
            .map(|node| node.addr().to_string())
            .collect();
        assert_eq!(names, ["one:7000", "two:7001"]);
        let node = map
            .node_for(12_182)
            .unwrap_or_else(|failure| panic!("{}", failure.message));
        assert_eq!(node.addr().to_string(), "two:7001");
        assert_eq!(node.redis_settings().password(), Some("secret"));
        assert!(map.node_for(16_201).is_err());
        assert!(SlotMap::parse(node, &[vec![Value::Int(0)]]).is_err());
    }
}
