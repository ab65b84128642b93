//! Requests, replies and views: what core and model are compared by.

use std::fmt;

use crate::fence::Fence;
use crate::lock::Holder;
use crate::names::Limit;
use crate::time::LeaseClock;
use crate::wire::{Acquire, Error, Extend, GrantRef, Granted, Holds, Release, Timeout, Wait};

/// Microseconds on a clock that never jumps, whatever the clocks of the servers show.
pub type Micros = i64;

/// The sender of one request. It gets exactly one reply, at once or later.
pub type Client = usize;

/// Owners of different lengths: none may be mistaken for the prefix of another.
pub const OWNERS: [&[u8]; 5] = [b"a", b"ab", b"alice", b"\0", b"bob"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    Acquire(Acquire<'a>),
    Release(Release<'a>),
    Extend(Extend<'a>),
}

pub type Reply = Result<Answer, Error>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted(Granted),
    NotGranted,
    /// How many wait before it, if an inbox with a name gets its answer.
    Queued(usize),
    /// The remaining holds.
    Holds(u64),
    /// The remaining lease.
    Lease(u64),
    /// The error, without its cycle.
    Deadlock,
    /// Of a transition without a request.
    Done,
}

/// BLOCK with this timeout.
pub fn block(timeout: Timeout) -> Option<Wait<'static>> {
    Some(Wait { timeout, inbox: None })
}

/// A lock with its queue, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView<'a> {
    pub holders: Vec<HolderView<'a>>,
    pub queue: Vec<Waiter<'a>>,
}

/// A live holder. Its request ids, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView<'a> {
    pub owner: &'a [u8],
    pub fence: Fence,
    pub limit: Limit,
    pub anonymous: usize,
    pub ids: Vec<&'a [u8]>,
    pub lease_ms: u64,
    pub held_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter<'a> {
    pub client: Client,
    pub since: Micros,
    pub request: Acquire<'a>,
}

impl<'a> Request<'a> {
    /// Parses a command without its key, such as `ACQUIRE alice 10 SHARED`.
    pub fn parse(text: &'a str) -> Self {
        const MAX_LEASE_MS: u64 = 3_600_000;
        let (command, args) = text.split_once(' ').expect("arguments");
        let args = args.split(' ').map(str::as_bytes);
        let request = match command {
            "ACQUIRE" => Acquire::parse(args, MAX_LEASE_MS).map(Self::Acquire),
            "RELEASE" => Release::parse(args).map(Self::Release),
            "EXTEND" => Extend::parse(args, MAX_LEASE_MS).map(Self::Extend),
            _ => panic!("{text}"),
        };
        request.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub fn owner(&self) -> &'a [u8] {
        match self {
            Self::Acquire(request) => request.owner,
            Self::Release(request) => request.owner,
            Self::Extend(request) => request.owner,
        }
    }

    /// Whether its client waits with it.
    pub fn blocks(&self) -> bool {
        matches!(self, Self::Acquire(request) if request.wait.is_some_and(|wait| wait.inbox.is_none()))
    }

    /// The smallest fence that it asks for.
    pub fn min_fence(&mut self) -> Option<&mut Fence> {
        match self {
            Self::Acquire(Acquire { min_fence, .. }) | Self::Extend(Extend { min_fence, .. }) => {
                min_fence.as_mut()
            }
            Self::Release(_) => None,
        }
    }

    /// An ACQUIRE has no fence, and an EXTEND has either a fence or a request id.
    pub fn with_fence(mut self, given: Fence) -> Self {
        match &mut self {
            Self::Release(Release { fence, .. }) => *fence = Some(given),
            Self::Extend(Extend { grant, .. }) if *grant == GrantRef::Current => {
                *grant = GrantRef::Fence(given)
            }
            Self::Acquire(_) | Self::Extend(_) => {}
        }
        self
    }
}

/// The text that [`Request::parse`] parses.
impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        let owner = text(self.owner());
        match self {
            Self::Acquire(request) => {
                write!(f, "ACQUIRE {owner} {}", request.lease_ms)?;
                match request.limit.get() {
                    Some(n) => write!(f, " LIMIT {n}")?,
                    None => write!(f, " SHARED")?,
                }
                match request.wait.map(|wait| wait.timeout) {
                    None => {}
                    Some(Timeout::Infinite) => write!(f, " BLOCK 0")?,
                    Some(Timeout::Ms(ms)) => write!(f, " BLOCK {ms}")?,
                }
                if let Some(id) = request.request_id {
                    write!(f, " REQID {}", text(id))?;
                }
                write_option(f, "MINFENCE", request.min_fence)
            }
            Self::Release(Release { fence, holds, .. }) => {
                write!(f, "RELEASE {owner}")?;
                write_option(f, "FENCE", *fence)?;
                match holds {
                    Holds::One => Ok(()),
                    Holds::All => write!(f, " ALL"),
                    Holds::ById(id) => write!(f, " REQID {}", text(id)),
                }
            }
            Self::Extend(request) => {
                write!(f, "EXTEND {owner} {}", request.lease_ms)?;
                match request.grant {
                    GrantRef::Current => {}
                    GrantRef::Fence(fence) => write!(f, " FENCE {fence}")?,
                    GrantRef::RequestId(id) => write!(f, " REQID {}", text(id))?,
                }
                write_option(f, "MINFENCE", request.min_fence)
            }
        }
    }
}

fn write_option(f: &mut fmt::Formatter<'_>, option: &str, value: Option<Fence>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {option} {value}"))
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'a> HolderView<'a> {
    pub fn of(holder: &'a Holder, clock: LeaseClock) -> Self {
        Self {
            owner: holder.owner(),
            fence: holder.fence(),
            limit: holder.limit(),
            anonymous: holder.anonymous() as usize,
            ids: holder.request_ids().iter().map(|id| &**id).collect(),
            lease_ms: holder.lease_ms(clock),
            held_ms: holder.since().ms_until(clock.now),
        }
    }
}

impl Waiter<'_> {
    /// When it times out.
    pub fn deadline(&self) -> Option<Micros> {
        match self.request.wait.map(|wait| wait.timeout) {
            Some(Timeout::Ms(ms)) => Some(self.since + ms as Micros * 1000),
            None | Some(Timeout::Infinite) => None,
        }
    }
}
