//! A process that waits through an inbox.

use redis::Value;

use crate::error::Result;
use crate::locks::LEASE;
use crate::wire::{Connection, command, encode};

pub struct Process {
    pub requests: Connection,
    /// Blocked in GRANTS.
    pub reader: Connection,
    inbox: String,
}

/// The key and the owner of a grant.
pub type Granted = (String, String);

impl Process {
    /// After its death, its inbox lives for this long.
    pub fn start(port: u16, inbox: &str, ttl_ms: u64) -> Result<Self> {
        let mut process = Self {
            requests: Connection::open(port)?,
            reader: Connection::open(port)?,
            inbox: inbox.into(),
        };
        let made = process
            .reader
            .ask(&["DLOCK.GRANTS", inbox, "0", "TTL", &ttl_ms.to_string()])?;
        process.take(made)?;
        Ok(process)
    }

    /// The grants in a reply of GRANTS: the cursor, a count, and the answers. Acknowledges them and waits for more.
    pub fn take(&mut self, reply: Value) -> Result<Vec<Granted>> {
        let (cursor, _, answers): (u64, u64, Vec<Vec<Value>>) = redis::from_redis_value(reply)?;
        // For longer than any measurement.
        let words = ["DLOCK.GRANTS", &self.inbox, &cursor.to_string(), "BLOCK", "60000"];
        self.reader.send(&command(&words))?;
        answers.into_iter().map(granted).collect()
    }

    pub fn encode_acquire(&self, (key, owner): (&str, &str), id: &str, bytes: &mut Vec<u8>) {
        encode(
            &[
                "DLOCK.ACQUIRE",
                key,
                owner,
                LEASE,
                "QUEUE",
                &self.inbox,
                "0",
                "REQID",
                id,
            ],
            bytes,
        );
    }

    /// A request that waits.
    pub fn queue(&mut self, names: (&str, &str), id: &str) -> Result<()> {
        let mut bytes = Vec::new();
        self.encode_acquire(names, id, &mut bytes);
        self.requests.send(&bytes)?;
        self.expect_done(1)
    }

    /// Reads this many replies: a place in the queue, or a lock that is released.
    pub fn expect_done(&mut self, replies: usize) -> Result<()> {
        (0..replies).try_for_each(|_| match self.requests.receive()? {
            Value::Int(0) => Ok(()),
            Value::Array(fields) if matches!(fields[..], [Value::Int(_)]) => Ok(()),
            reply => Err(format!("neither queued nor released: {reply:?}").into()),
        })
    }
}

fn granted(answer: Vec<Value>) -> Result<Granted> {
    match &answer[..] {
        [
            Value::BulkString(word),
            _,
            Value::BulkString(key),
            Value::BulkString(owner),
            ..,
        ] if word == b"granted" => {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            Ok((text(key), text(owner)))
        }
        _ => Err(format!("the inbox has {answer:?}").into()),
    }
}
