//! What goes to the thread: acquisitions, and what becomes of them.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::command::{Acquire, Extend, Release};
use crate::error::Error;
use crate::exit::Pending;
use crate::hold::{Hold, Plan};
use crate::owner::{Owner, ProcessName};

/// How many owners may hold a lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Mutex,
    AtMost(u32),
    Shared,
}

/// What must acknowledge a grant before it counts.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "replicas"), expect(dead_code, reason = "never asked for"))]
pub(crate) struct Acknowledgement {
    /// This many replicas.
    pub replicas: u32,
    /// Once it is fsynced to the AOF, there and on the primary.
    pub fsynced: bool,
    pub timeout: Duration,
}

/// What identifies one acquisition. All its requests carry it, however often they are sent.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub key: Arc<[u8]>,
    pub owner: Owner,
    /// Its number in this process: later acquisitions have larger ones.
    pub number: u64,
    /// The attempt: one whose grant came too late is followed by another.
    pub attempt: u32,
    process: Arc<ProcessName>,
}

/// An acquisition, as the application asked for it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub identity: Identity,
    pub limit: Limit,
    pub plan: Plan,
    pub acknowledgement: Option<Acknowledgement>,
    /// Whether it waits if the lock is taken.
    pub waits: bool,
    /// Until when.
    pub until: Option<BootInstant>,
}

/// A lock that is held, as the guard and the thread see it.
pub(crate) struct Held {
    pub identity: Identity,
    pub fence: u64,
    /// Cancelled when the lock is lost or released.
    pub token: CancellationToken,
    hold: Mutex<Hold>,
}

/// The reply to an acquisition; `None`: the lock is taken.
pub(crate) type Acquired = Result<Option<Arc<Held>>, Error>;
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What a caller asks of the thread.
pub(crate) enum Operation {
    Acquire(Request, oneshot::Sender<Acquired>),
    /// The caller of this acquisition is gone.
    Abandon(u64, Pending),
    Release {
        held: Arc<Held>,
        /// Whether the lock is kept for the time that was asked for.
        keeps: bool,
        reply: Option<Reply<()>>,
        pending: Pending,
    },
    Extend(Arc<Held>, Duration, Reply<Duration>),
    /// Says when all releases are done.
    Settle(Reply<()>),
    Query {
        command: Cmd,
        /// Whether it may be sent again when the reply was lost.
        is_idempotent: bool,
        within: Duration,
        reply: Reply<Value>,
    },
}

impl Identity {
    pub fn new(key: Arc<[u8]>, owner: Option<Owner>, number: u64, process: &Arc<ProcessName>) -> Self {
        Self {
            key,
            owner: owner.unwrap_or_else(|| process.owner(number)),
            number,
            attempt: 0,
            process: Arc::clone(process),
        }
    }

    /// The request id of this acquisition. No other process has the same one.
    fn id(&self) -> Vec<u8> {
        let mut id = Vec::with_capacity(64);
        id.extend_from_slice(&self.process.random);
        // Nothing fails that writes to memory.
        let _ = write!(id, ":{}:{}", self.number, self.attempt);
        id
    }

    /// The number and the attempt of a request id of this process.
    pub fn parse(id: &[u8], process: &ProcessName) -> Option<(u64, u32)> {
        let id = id.strip_prefix(&process.random)?.strip_prefix(b":")?;
        let (number, attempt) = std::str::from_utf8(id).ok()?.split_once(':')?;
        Some((number.parse().ok()?, attempt.parse().ok()?))
    }

    /// The same acquisition by a name that is known from an answer.
    pub fn answered(key: &[u8], owner: &[u8], number: u64, attempt: u32, process: &Arc<ProcessName>) -> Self {
        Self {
            key: key.into(),
            owner: Owner::from(owner),
            number,
            attempt,
            process: Arc::clone(process),
        }
    }

    /// Takes the request back: it leaves the queue, and what it was granted is released.
    pub fn give_back(&self) -> Cmd {
        Release::new(&*self.key, &self.owner).request_id(self.id()).into()
    }
}

impl Request {
    /// With an inbox it is queued if the lock is taken.
    pub fn acquire(&self, inbox: Option<&[u8; 32]>) -> Cmd {
        let Identity { key, owner, .. } = &self.identity;
        let request = Acquire::new(&**key, owner, self.plan.first_lease()).request_id(self.identity.id());
        let mut command: Cmd = match self.limit {
            Limit::Mutex => request,
            Limit::AtMost(limit) => request.limit(limit),
            Limit::Shared => request.shared(),
        }
        .into();
        if let Some(inbox) = inbox {
            command.arg("QUEUE").arg(inbox).arg(0);
        }
        command
    }
}

impl Held {
    pub fn new(identity: Identity, fence: u64, hold: Hold) -> Self {
        Self {
            identity,
            fence,
            token: CancellationToken::new(),
            hold: Mutex::new(hold),
        }
    }

    /// The state of the hold. Nothing that holds this lock waits.
    pub fn hold(&self) -> MutexGuard<'_, Hold> {
        // Nothing panics under it, and each change is a whole one.
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn extend(&self, lease: Duration) -> Cmd {
        let Identity { key, owner, .. } = &self.identity;
        Extend::new(&**key, owner, lease).fence(self.fence).into()
    }

    /// As [`Held::extend`], but not beyond the maximum hold time.
    pub fn extend_within(&self, lease: Duration, now: BootInstant) -> Cmd {
        let longest = self.hold().longest(now).max(Duration::from_millis(1));
        self.extend(lease.min(longest))
    }

    pub fn release(&self) -> Cmd {
        let Identity { key, owner, .. } = &self.identity;
        Release::new(&**key, owner)
            .fence(self.fence)
            .request_id(self.identity.id())
            .into()
    }
}
