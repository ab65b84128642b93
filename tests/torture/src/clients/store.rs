//! What a lock protects: a set that is read, changed and written back as a whole, on a server of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use super::connection::Connection;

/// Nothing is done to the server of the store.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every access carries its fence, reads too: else a holder could read between another one's read and
/// write, and neither would be refused.
const CHECK: &str = "local f = tonumber(redis.call('GET', 'fence') or '0')
if tonumber(ARGV[1]) < f then return false end
redis.call('SET', 'fence', ARGV[1]) ";

/// How the store deals with fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It takes every write.
    None,
    /// It refuses a smaller fence than it has seen.
    Fence,
}

/// A connection to the store.
pub struct Store {
    connection: Connection,
    guard: Guard,
}

impl Store {
    /// The store on the server with that port.
    pub fn open(port: u16, guard: Guard) -> Self {
        let connection = Connection::open(port).expect("the server of the store lives");
        Self { connection, guard }
    }

    /// All elements; `None`: the fence is too small.
    pub fn read(&mut self, fence: u64) -> Option<BTreeSet<u64>> {
        let value = match self.guard {
            Guard::None => self.ask(&["GET", "set"]),
            Guard::Fence => {
                let script = format!("{CHECK} return redis.call('GET', 'set') or ''");
                self.ask(&["EVAL", &script, "0", &fence.to_string()])
            }
        };
        match value {
            Value::Nil if self.guard == Guard::Fence => None,
            Value::BulkString(text) => Some(elements(&String::from_utf8_lossy(&text))),
            _ => Some(BTreeSet::new()),
        }
    }

    /// Replaces all elements. Whether the store took them.
    pub fn write(&mut self, elements: &BTreeSet<u64>, fence: u64) -> bool {
        let text: Vec<String> = elements.iter().map(u64::to_string).collect();
        let text = text.join(" ");
        let value = match self.guard {
            Guard::None => self.ask(&["SET", "set", &text]),
            Guard::Fence => {
                let script = format!("{CHECK} return redis.call('SET', 'set', ARGV[2])");
                self.ask(&["EVAL", &script, "0", &fence.to_string(), &text])
            }
        };
        value == Value::Okay
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let answer = self.connection.ask(&words, PATIENCE);
        answer.expect("the server of the store answers")
    }
}

fn elements(text: &str) -> BTreeSet<u64> {
    let words = text.split_whitespace();
    words
        .map(|word| word.parse().expect("only numbers are stored"))
        .collect()
}
