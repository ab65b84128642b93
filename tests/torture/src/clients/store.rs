//! The data a lock protects: a set on a separate server, read and written back as a whole.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use dlock_testkit::Connection;

/// No faults are injected into the server of the store.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Reads carry the fence too. Otherwise a holder could read between the read and the write of another holder, and
/// neither write would be rejected.
const CHECK: &str = "local f = tonumber(redis.call('GET', 'fence') or '0')
if tonumber(ARGV[1]) < f then return false end
redis.call('SET', 'fence', ARGV[1]) ";

/// Whether the store checks fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Every write is accepted.
    Off,
    /// A write with a smaller fence than one seen before is rejected.
    On,
}

pub struct Store {
    connection: Connection,
    fencing: Fencing,
}

impl Store {
    pub fn open(port: u16, fencing: Fencing) -> Self {
        let connection = Connection::open(port).expect("the server of the store runs");
        Self { connection, fencing }
    }

    /// All elements, or `None` if the fence is stale.
    pub fn read(&mut self, fence: u64) -> Option<BTreeSet<u64>> {
        let value = match self.fencing {
            Fencing::Off => self.call(&["GET", "set"]),
            Fencing::On => {
                let script = format!("{CHECK} return redis.call('GET', 'set') or ''");
                self.call(&["EVAL", &script, "0", &fence.to_string()])
            }
        };
        match value {
            Value::Nil if self.fencing == Fencing::On => None,
            Value::BulkString(text) => Some(elements(&String::from_utf8_lossy(&text))),
            _ => Some(BTreeSet::new()),
        }
    }

    /// Replaces all elements. Returns whether the store accepted the write.
    pub fn write(&mut self, elements: &BTreeSet<u64>, fence: u64) -> bool {
        let text: Vec<String> = elements.iter().map(u64::to_string).collect();
        let text = text.join(" ");
        let value = match self.fencing {
            Fencing::Off => self.call(&["SET", "set", &text]),
            Fencing::On => {
                let script = format!("{CHECK} return redis.call('SET', 'set', ARGV[2])");
                self.call(&["EVAL", &script, "0", &fence.to_string(), &text])
            }
        };
        value == Value::Okay
    }

    fn call(&mut self, args: &[&str]) -> Value {
        let reply = self.connection.call(args, REPLY_TIMEOUT);
        reply.expect("the server of the store replies")
    }
}

fn elements(text: &str) -> BTreeSet<u64> {
    let words = text.split_whitespace();
    words
        .map(|word| word.parse().expect("only numbers are stored"))
        .collect()
}
