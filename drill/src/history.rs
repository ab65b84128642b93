//! The recorded requests, replies and times: the input of the checkers.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// Microseconds on the clock of [`now`].
pub type Micros = u64;

/// The monotonic clock of Linux does not count suspend; that of macOS does.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time on a clock that all processes share, independent of the wall clock, and counting suspend.
pub fn now() -> Micros {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}

/// The requests, replies and injected faults of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Requests in the order of their replies.
    pub ops: Vec<Op>,
    /// Injected faults, in order.
    pub events: Vec<Event>,
    /// The lists that locks protect, of servers about to be killed and at the end.
    pub lists: Vec<List>,
    /// States of servers after a restart.
    pub restored: Vec<Restored>,
    pub final_states: Vec<FinalState>,
    /// What should have happened when nothing disturbed clients any more, and has not: an answer, or the end of a hold.
    pub unfinished: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Op {
    pub owner: String,
    pub key: String,
    pub server: ServerTerm,
    pub request: Request,
    /// Time before the first byte was sent.
    pub sent: Micros,
    /// Time at which the reply was read, or the request failed.
    pub replied: Micros,
    pub reply: Reply,
}

/// A server during one term: from its start or promotion until it is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerTerm {
    pub port: u16,
    /// Term, larger than that of every earlier primary or process.
    pub term: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Acquire(Acquire),
    Extend {
        lease_ms: u64,
        fence: Option<u64>,
    },
    Release {
        fence: Option<u64>,
        all: bool,
        reqid: Option<String>,
    },
    Push(Push),
}

/// A write to a list that a lock protects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub list: String,
    pub element: Element,
}

/// Names of lists that are written only through GUARD end in this.
pub const GUARDED: &str = ":guarded";

/// Names of the other lists end in this.
pub const PLAIN: &str = ":plain";

/// An element of a list. A correct list is sorted: by grants, and by the writes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// The fence of the grant.
    pub fence: u64,
    /// Counts the writes of a client, each of which is sent once.
    pub number: u64,
}

/// The elements of a list on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    pub name: String,
    pub elements: Vec<Element>,
    /// Whether this is the end of the run.
    pub is_final: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub lease_ms: u64,
    pub limit: Limit,
    pub wait: Wait,
    pub reqid: Option<String>,
}

/// How a request waits in the queue of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    Block { timeout_ms: u64 },
}

/// How many may hold a lock at once, strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// LIMIT; 1 is a mutex.
    Of(u32),
    Shared,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To ACQUIRE.
    Granted {
        fence: u64,
        holds: u64,
        lease_ms: u64,
        waited_ms: u64,
    },
    Null,
    /// To RELEASE: the remaining holds.
    Remaining(u64),
    /// To EXTEND: the remaining lease.
    Lease(u64),
    /// To RPUSH: the length of the list.
    Length(u64),
    Error(String),
    /// The connection was closed before a reply: the request may or may not have been executed.
    Disconnected,
    /// No reply in time on an open connection.
    TimedOut,
    /// Not a reply to this request, or a second reply to the previous one.
    Unexpected(String),
}

/// An action of the harness, such as a fault.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Micros,
    pub what: String,
}

/// The state of a server after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The data it started on.
    pub after: String,
    /// The state described by the data.
    pub expected: String,
    /// The state after the restart.
    pub found: String,
}

/// The state of a server after the last request and the last lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalState {
    pub port: u16,
    /// Number of keys of any type.
    pub keys: u64,
    pub waiting: u64,
    /// Number of inboxes and of answers in them.
    pub inboxes: u64,
    /// The line of its log about a crash.
    pub crash: Option<String>,
}

impl Reply {
    /// Whether this is an error with one of these codes.
    pub fn is_error(&self, codes: &[&str]) -> bool {
        match self {
            Self::Error(error) => codes.contains(&error.split_whitespace().next().unwrap_or_default()),
            _ => false,
        }
    }

    /// Whether it is unknown if the request was executed.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Disconnected | Self::TimedOut)
    }
}

impl Op {
    pub fn acquire(&self) -> Option<&Acquire> {
        match &self.request {
            Request::Acquire(acquire) => Some(acquire),
            _ => None,
        }
    }

    /// The write, if this is one that was acknowledged.
    pub fn acknowledged_push(&self) -> Option<&Push> {
        match (&self.request, &self.reply) {
            (Request::Push(push), Reply::Length(_)) => Some(push),
            _ => None,
        }
    }

    /// Whether GUARD refused a write.
    pub fn is_refused_push(&self) -> bool {
        matches!(self.request, Request::Push(_)) && self.reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"])
    }

    /// A time before the grant.
    pub fn granted_after(&self) -> Micros {
        match self.reply {
            Reply::Granted { waited_ms, .. } => self.sent + waited_ms * 1_000,
            _ => 0,
        }
    }

    /// The safe local deadline that the owner derives from the reply.
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

/// Records a history from several threads.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<History>>);

impl Recorder {
    pub fn op(&self, op: Op) {
        self.lock().ops.push(op);
    }

    pub fn event(&self, what: impl Into<String>) {
        let event = Event {
            at: now(),
            what: what.into(),
        };
        self.lock().events.push(event);
    }

    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
                if let Wait::Block { timeout_ms } = acquire.wait {
                    write!(f, " BLOCK {timeout_ms}")?;
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
            Self::Push(Push { list, element }) => {
                if list.ends_with(GUARDED) {
                    write!(f, "GUARD {} ", element.fence)?;
                }
                write!(f, "RPUSH {list} {element}")
            }
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fence, self.number)
    }
}

impl Element {
    /// Parses what it displays.
    pub fn parse(text: &str) -> Option<Self> {
        let (fence, number) = text.split_once(':')?;
        let (fence, number) = (fence.parse().ok()?, number.parse().ok()?);
        Some(Self { fence, number })
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
            Self::Remaining(holds) => write!(f, "{holds} holds left"),
            Self::Lease(ms) => write!(f, "lease {ms} ms"),
            Self::Length(length) => write!(f, "{length} elements"),
            Self::Error(error) => write!(f, "{error}"),
            Self::Disconnected => write!(f, "connection lost"),
            Self::TimedOut => write!(f, "no reply"),
            Self::Unexpected(what) => write!(f, "unexpected reply: {what}"),
        }
    }
}
