//! Requests, replies and views in types of neither the core nor the model, which are compared in them.

/// Microseconds on a clock that never jumps, whatever the clocks of the servers show.
pub type Micros = i64;

/// The largest number of holders; `None` = SHARED.
pub type Limit = Option<u32>;

/// One request of one owner. An ACQUIRE ignores the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub owner: u8,
    pub action: Action,
    pub fence: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire {
        lease_ms: u64,
        limit: Limit,
        name: Option<u8>,
    },
    ReleaseOne,
    ReleaseAll,
    ReleaseNamed(u8),
    /// With a name, the fence is not given.
    Extend {
        lease_ms: u64,
        name: Option<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted {
        fence: u64,
        holds: u64,
        lease_ms: u64,
    },
    NotGranted,
    /// The remaining holds.
    Holds(u64),
    /// The remaining lease.
    Lease(u64),
    /// The error code, and the number in its text (0 = none).
    Error(&'static str, u64),
}

/// A live holder as clients see it, and its request ids, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub owner: u8,
    pub fence: u64,
    pub limit: Limit,
    pub unnamed: u64,
    pub names: Vec<u8>,
    pub lease_ms: u64,
    pub held_ms: u64,
}

impl Request {
    pub fn acquire(owner: u8, lease_ms: u64, limit: Limit) -> Self {
        Self {
            owner,
            action: Action::Acquire {
                lease_ms,
                limit,
                name: None,
            },
            fence: None,
        }
    }

    pub fn named(owner: u8, lease_ms: u64, limit: Limit, name: u8) -> Self {
        Self {
            owner,
            action: Action::Acquire {
                lease_ms,
                limit,
                name: Some(name),
            },
            fence: None,
        }
    }

    pub fn release(owner: u8) -> Self {
        Self {
            owner,
            action: Action::ReleaseOne,
            fence: None,
        }
    }

    pub fn release_all(owner: u8) -> Self {
        Self {
            owner,
            action: Action::ReleaseAll,
            fence: None,
        }
    }

    pub fn release_named(owner: u8, name: u8) -> Self {
        Self {
            owner,
            action: Action::ReleaseNamed(name),
            fence: None,
        }
    }

    pub fn extend(owner: u8, lease_ms: u64) -> Self {
        Self {
            owner,
            action: Action::Extend { lease_ms, name: None },
            fence: None,
        }
    }

    pub fn extend_named(owner: u8, lease_ms: u64, name: u8) -> Self {
        Self {
            owner,
            action: Action::Extend {
                lease_ms,
                name: Some(name),
            },
            fence: None,
        }
    }

    pub fn with_fence(self, fence: u64) -> Self {
        Self {
            fence: Some(fence),
            ..self
        }
    }
}

/// The sender of one request. It gets exactly one reply, at once or later.
pub type Client = usize;

/// A request for one of several locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub lock: usize,
    pub request: Request,
    /// For an ACQUIRE only.
    pub block: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    No,
    Infinite,
    Ms(u64),
}

/// The reply to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub answer: Answer,
    /// The time that the request spent in the queue.
    pub waited_ms: u64,
}

/// A waiter.
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
pub struct LockView {
    pub holders: Vec<View>,
    pub queue: Vec<Waiter>,
}

/// A hold whose client disconnected before the grant reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub lock: usize,
    pub owner: u8,
    pub fence: u64,
    pub name: Option<u8>,
}

impl Reply {
    pub fn immediate(answer: Answer) -> Self {
        Self { answer, waited_ms: 0 }
    }

    pub fn null() -> Self {
        Self::immediate(Answer::NotGranted)
    }

    pub fn error(code: &'static str) -> Self {
        Self::immediate(Answer::Error(code, 0))
    }
}

impl Waiter {
    /// The waiting request.
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

    /// When it times out.
    pub fn deadline(&self) -> Option<Micros> {
        match self.block {
            Block::Ms(ms) => Some(self.since + ms as Micros * 1000),
            Block::No | Block::Infinite => None,
        }
    }
}
