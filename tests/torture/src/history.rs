//! What was asked, what was replied, and when. All that the checkers know.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// Microseconds on the clock of [`now`].
pub type Micros = u64;

/// Now, on a clock that all processes of the machine share, that no wall clock moves, and that counts suspend.
pub fn now() -> Micros {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}

/// One run: requests with their replies, and what was done to servers and clients meanwhile.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they were replied.
    pub ops: Vec<Op>,
    /// What the harness did, in order.
    pub events: Vec<Event>,
    /// What holders wrote into a store that the lock protects.
    pub writes: Vec<Write>,
    /// What the store has at the end. Nothing where no store was used.
    pub stored: Option<BTreeSet<u64>>,
    /// What servers had after a start on their data.
    pub restored: Vec<Restored>,
    /// What the servers have at the end.
    pub final_states: Vec<FinalState>,
}

/// A request and its reply.
#[derive(Clone, Debug)]
pub struct Op {
    /// Who asks.
    pub owner: String,
    /// For which lock.
    pub key: String,
    /// Whom.
    pub server: ServerTerm,
    /// For what.
    pub request: Request,
    /// When, before the first byte was sent.
    pub sent: Micros,
    /// When the reply had been read, or it was clear that none would come.
    pub replied: Micros,
    /// What came.
    pub reply: Reply,
}

/// A server as one reign: it decides alone from its start, or its promotion, until it is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTerm {
    /// The port of the server.
    pub port: u16,
    /// The number of the reign: larger than that of any server, or process, that it follows.
    pub term: u32,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// DLOCK.ACQUIRE
    Acquire(Acquire),
    /// DLOCK.EXTEND
    Extend {
        /// In milliseconds.
        lease_ms: u64,
        /// FENCE
        fence: Option<u64>,
    },
    /// DLOCK.RELEASE
    Release {
        /// FENCE
        fence: Option<u64>,
        /// ALL
        all: bool,
        /// REQID
        reqid: Option<String>,
    },
}

/// The options of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// In milliseconds.
    pub lease_ms: u64,
    /// How many may hold the lock at once.
    pub limit: Limit,
    /// BLOCK
    pub block_ms: Option<u64>,
    /// REQID
    pub reqid: Option<String>,
}

/// How many may hold a lock at once. The smaller one is the stricter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// So many; 1 = a mutex.
    Of(u32),
    /// Any number.
    Shared,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To ACQUIRE.
    Granted {
        /// The fencing token.
        fence: u64,
        /// Holds of this owner.
        holds: u64,
        /// What remains, in milliseconds.
        lease_ms: u64,
        /// For how long the request was queued.
        waited_ms: u64,
    },
    /// To ACQUIRE: not granted.
    Null,
    /// To RELEASE: the holds that are left.
    Remaining(u64),
    /// To EXTEND: the lease that remains.
    Lease(u64),
    /// An error, the whole of it.
    Error(String),
    /// The connection ended before an reply: the request may or may not have been carried out.
    Disconnected,
    /// The connection is open, and no reply came in time.
    TimedOut,
    /// Something that is no reply to this request, or a second reply to the last one.
    Unexpected(String),
}

/// Something that the harness did.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was done.
    pub at: Micros,
    /// What it was.
    pub what: String,
}

/// An element that a holder tried to add to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The element, never written twice.
    pub element: u64,
    /// The fence that the holder had.
    pub fence: u64,
    /// When the reply of the store was there.
    pub at: Micros,
    /// Whether the holder believes that the element is in.
    pub acknowledged: bool,
}

/// The state of a server after a start on its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// On what it started.
    pub after: String,
    /// The state that it had when it wrote that.
    pub expected: String,
    /// The state that it has.
    pub found: String,
}

/// What a server has, some time after the last request and the last lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalState {
    /// The port of the server.
    pub port: u16,
    /// Keys of any kind.
    pub keys: u64,
    /// Requests that still wait.
    pub waiting: u64,
    /// How it died, if it did by itself: from its log.
    pub crash: Option<String>,
}

impl Reply {
    /// Whether it is an error with one of these first words.
    pub fn is_error(&self, words: &[&str]) -> bool {
        match self {
            Self::Error(error) => words.contains(&error.split_whitespace().next().unwrap_or_default()),
            _ => false,
        }
    }

    /// Whether the request may have been carried out, or not.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Disconnected | Self::TimedOut)
    }
}

impl Op {
    /// The acquisition that this asked for.
    pub fn acquire(&self) -> Option<&Acquire> {
        match &self.request {
            Request::Acquire(acquire) => Some(acquire),
            _ => None,
        }
    }

    /// Until when an reply lets its owner believe in the hold: its safe local deadline.
    pub fn safe_deadline(&self) -> Micros {
        let valid_ms = match self.reply {
            Reply::Granted {
                lease_ms, waited_ms, ..
            } => waited_ms + lease_ms,
            Reply::Lease(lease_ms) => lease_ms,
            _ => return 0,
        };
        (self.sent + valid_ms * 999).saturating_sub(2_000)
    }
}

/// A history in the making, shared by all who write it.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<History>>);

impl Recorder {
    /// Writes down a request with its reply.
    pub fn op(&self, op: Op) {
        self.lock().ops.push(op);
    }

    /// Writes down what the harness does.
    pub fn event(&self, what: impl Into<String>) {
        let event = Event {
            at: now(),
            what: what.into(),
        };
        self.lock().events.push(event);
    }

    /// Changes anything else of the history.
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.lock().clone()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(acquire) => {
                write!(f, "ACQUIRE {}", acquire.lease_ms)?;
                match acquire.limit {
                    Limit::Shared => write!(f, " SHARED")?,
                    Limit::Of(1) => {}
                    Limit::Of(limit) => write!(f, " LIMIT {limit}")?,
                }
                if let Some(ms) = acquire.block_ms {
                    write!(f, " BLOCK {ms}")?;
                }
                write_option(f, "REQID", acquire.reqid.as_ref())
            }
            Self::Extend { lease_ms, fence } => {
                write!(f, "EXTEND {lease_ms}")?;
                write_option(f, "FENCE", fence.as_ref())
            }
            Self::Release { fence, all, reqid } => {
                write!(f, "RELEASE")?;
                write_option(f, "FENCE", fence.as_ref())?;
                if *all {
                    write!(f, " ALL")?;
                }
                write_option(f, "REQID", reqid.as_ref())
            }
        }
    }
}

fn write_option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " {name} {value}"),
        None => Ok(()),
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted {
                fence,
                holds,
                lease_ms,
                waited_ms,
            } => write!(
                f,
                "fence {fence}, holds {holds}, lease {lease_ms} ms, waited {waited_ms} ms"
            ),
            Self::Null => write!(f, "null"),
            Self::Remaining(holds) => write!(f, "{holds} left"),
            Self::Lease(ms) => write!(f, "lease {ms} ms"),
            Self::Error(error) => write!(f, "{error}"),
            Self::Disconnected => write!(f, "connection lost"),
            Self::TimedOut => write!(f, "no reply"),
            Self::Unexpected(what) => write!(f, "not an reply to this: {what}"),
        }
    }
}
