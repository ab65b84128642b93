use redis::{FromRedisValue, ParsingError, Value, cmd};

use super::node::Node;
use crate::exit::Failure;

/// Slots of a cluster that one primary serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    first: u16,
    last: u16,
    /// Empty: the one that told.
    pub host: String,
    pub port: u16,
}

impl Range {
    pub fn contains(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// Who serves which slots, as a node knows it.
pub fn of(node: &mut Node) -> Result<Vec<Range>, Failure> {
    node.query(cmd("CLUSTER").arg("SLOTS"))
}

impl FromRedisValue for Range {
    /// `first, last, [host, port, ...] of the primary, those of the replicas ...`
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let parts: Vec<Value> = FromRedisValue::from_redis_value(value)?;
        let mut parts = parts.into_iter();
        let mut part = || {
            parts
                .next()
                .ok_or_else(|| ParsingError::from("CLUSTER SLOTS told too little"))
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
