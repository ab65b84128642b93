//! Plain words for what is asked, answered and seen. Core and model are compared in these.

/// Microseconds on a clock that never jumps, whatever the clocks of the servers show.
pub type Micros = i64;

/// How many holders; `None` = SHARED.
pub type Limit = Option<u32>;

/// One request of one owner. An ACQUIRE has no use for the fence.
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
    Extend {
        lease_ms: u64,
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
    /// The holds that are left.
    Holds(u64),
    /// The lease that remains.
    Lease(u64),
    /// The first word, and the number that the text after it names (0 = none).
    Error(&'static str, u64),
}

/// A live holder as a client could see it, and the order of its named holds.
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
            action: Action::Extend { lease_ms },
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
