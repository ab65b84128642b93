//! Plain words for several locks and those who wait for them.

use super::super::ops::{Action, Answer, Limit, Micros, Request, View};

/// Whoever sends a request. Each gets exactly one answer, at once or later.
pub type Client = usize;

/// A request for one of several locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub lock: usize,
    pub request: Request,
    /// Means something for an ACQUIRE only.
    pub block: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    No,
    Forever,
    Ms(u64),
}

/// The answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub answer: Answer,
    /// For how long the request was in the queue.
    pub waited_ms: u64,
}

/// A waiter as it could be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub client: Client,
    pub owner: u8,
    pub limit: Limit,
    pub lease_ms: u64,
    pub name: Option<u8>,
    pub since: Micros,
    pub block: Block,
}

/// A lock with its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixture {
    pub holders: Vec<View>,
    pub queue: Vec<Waiter>,
}

/// A hold that was granted to a client which never heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub lock: usize,
    pub owner: u8,
    pub fence: u64,
    pub name: Option<u8>,
}

impl Told {
    pub fn at_once(answer: Answer) -> Self {
        Self { answer, waited_ms: 0 }
    }

    pub fn null() -> Self {
        Self::at_once(Answer::NotGranted)
    }

    pub fn error(code: &'static str) -> Self {
        Self::at_once(Answer::Error(code, 0))
    }
}

impl Waiter {
    /// The request that waits.
    pub fn ask(&self, lock: usize) -> Ask {
        let action = Action::Acquire {
            lease_ms: self.lease_ms,
            limit: self.limit,
            name: self.name,
        };
        let request = Request {
            owner: self.owner,
            action,
            fence: None,
        };
        Ask {
            lock,
            request,
            block: self.block,
        }
    }

    /// When it gives up.
    pub fn deadline(&self) -> Option<Micros> {
        match self.block {
            Block::Ms(ms) => Some(self.since + ms as Micros * 1000),
            Block::No | Block::Forever => None,
        }
    }
}
