//! A process that waits through an inbox.

use crate::error::Result;
use crate::resp::{Connection, Reply, encode};
use crate::server::Server;

pub const LEASE_MS: u64 = 600_000;

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
    pub fn start(server: &Server, inbox: &str, ttl_ms: u64) -> Result<Self> {
        let mut process = Self {
            requests: server.connect()?,
            reader: server.connect()?,
            inbox: inbox.into(),
        };
        let words = ["DLOCK.GRANTS", inbox, "0", "TTL", &ttl_ms.to_string()];
        let made = process.reader.call(&words)?;
        process.take(made)?;
        Ok(process)
    }

    /// The grants in a reply of GRANTS. Acknowledges them and waits for more.
    pub fn take(&mut self, reply: Reply) -> Result<Vec<Granted>> {
        if let Reply::Array(fields) = &reply
            && let [Reply::Integer(cursor), _, Reply::Array(answers)] = &fields[..]
        {
            let cursor = cursor.to_string();
            // For longer than any measurement.
            let words = ["DLOCK.GRANTS", &self.inbox, &cursor, "BLOCK", "60000"];
            self.reader.send_words(&words)?;
            return answers.iter().map(granted).collect();
        }
        Err(format!("GRANTS replied {reply:?}").into())
    }

    pub fn encode_acquire(&self, (key, owner): (&str, &str), id: &str, bytes: &mut Vec<u8>) {
        let lease = LEASE_MS.to_string();
        let words = [
            "DLOCK.ACQUIRE",
            key,
            owner,
            &lease,
            "QUEUE",
            &self.inbox,
            "0",
            "REQID",
            id,
        ];
        encode(words.into_iter(), bytes);
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
            Reply::Integer(0) => Ok(()),
            Reply::Array(fields) if matches!(fields[..], [Reply::Integer(_)]) => Ok(()),
            reply => Err(format!("neither queued nor released: {reply:?}").into()),
        })
    }
}

fn granted(answer: &Reply) -> Result<Granted> {
    if let Reply::Array(fields) = answer
        && let [Reply::Bulk(word), _, Reply::Bulk(key), Reply::Bulk(owner), ..] = &fields[..]
        && word == b"granted"
    {
        let [key, owner] = [key, owner].map(|name| String::from_utf8_lossy(name).into_owned());
        return Ok((key, owner));
    }
    Err(format!("the inbox has {answer:?}").into())
}
