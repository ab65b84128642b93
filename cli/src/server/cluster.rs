//! CLUSTER SLOTS.

use redis::{FromRedisValue, ParsingError, Value, cmd};

use super::node::Node;
use crate::exit::Failure;

/// A range of slots and the primary that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    first: u16,
    last: u16,
    /// Empty for the node that replied, if it does not know its own address.
    pub host: String,
    pub port: u16,
}

impl SlotRange {
    pub fn contains(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// The slot ranges of the cluster, as this node knows them.
pub fn slot_ranges(node: &mut Node) -> Result<Vec<SlotRange>, Failure> {
    node.query(cmd("CLUSTER").arg("SLOTS"))
}

impl FromRedisValue for SlotRange {
    /// `first, last, [host, port, ...] of the primary, [host, port, ...] of each replica`
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let parts: Vec<Value> = FromRedisValue::from_redis_value(value)?;
        let mut parts = parts.into_iter();
        let mut part = || {
            parts
                .next()
                .ok_or_else(|| ParsingError::from("incomplete reply to CLUSTER SLOTS"))
        };
        let first = u16::from_redis_value(part()?)?;
        let last = u16::from_redis_value(part()?)?;
        let primary: Vec<Value> = FromRedisValue::from_redis_value(part()?)?;
        let mut primary = primary.into_iter();
        let host: Option<String> = FromRedisValue::from_redis_value(primary.next().unwrap_or(Value::Nil))?;
        let port = u16::from_redis_value(primary.next().unwrap_or(Value::Nil))?;
        Ok(Self {
            first,
            last,
            host: host.unwrap_or_default(),
            port,
        })
    }
}
