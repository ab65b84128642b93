//! What goes to the thread: acquisitions, and what becomes of them; and what the end of a process waits for.

use std::cell::RefCell;
use std::io::Write;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::command::{Acquire, Extend, Owner, ProcessName, Release};
use crate::error::Error;
use crate::hold::{Hold, Plan};

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
    /// The smallest fence of the grant, of a lock over several servers.
    pub min_fence: Option<NonZeroU64>,
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
    /// Of a lock over several servers it may be raised, and is 0 while it is not known.
    fence: AtomicU64,
    /// Whether it may be.
    pub is_raisable: bool,
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
    Extend {
        held: Arc<Held>,
        lease: Duration,
        /// The fence to raise it to.
        min_fence: Option<NonZeroU64>,
        reply: Reply<Duration>,
    },
    /// Requests that wait find an inbox from now on.
    KeepInbox,
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
        if let Some(fence) = self.min_fence {
            command.arg("MINFENCE").arg(fence.get());
        }
        command
    }
}

impl Held {
    pub fn new(identity: Identity, fence: u64, is_raisable: bool, hold: Hold) -> Self {
        Self {
            identity,
            fence: AtomicU64::new(fence),
            is_raisable,
            token: CancellationToken::new(),
            hold: Mutex::new(hold),
        }
    }

    /// The state of the hold. Nothing that holds this lock waits.
    pub fn hold(&self) -> MutexGuard<'_, Hold> {
        // Nothing panics under it, and each change is a whole one.
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fencing token; 0 while it is not known.
    pub fn fence(&self) -> u64 {
        self.fence.load(Ordering::Relaxed)
    }

    pub fn set_fence(&self, fence: u64) {
        self.fence.store(fence, Ordering::Relaxed);
    }

    pub fn extend(&self, lease: Duration) -> Cmd {
        let Identity { key, owner, .. } = &self.identity;
        let extend = Extend::new(&**key, owner, lease);
        match self.is_raisable {
            true => extend.request_id(self.identity.id()).into(),
            false => extend.fence(self.fence()).into(),
        }
    }

    /// As [`Held::extend`], but not beyond the maximum hold time.
    pub fn extend_within(&self, lease: Duration, now: BootInstant) -> Cmd {
        let longest = self.hold().longest(now).max(Duration::from_millis(1));
        self.extend(lease.min(longest))
    }

    pub fn release(&self) -> Cmd {
        let Identity { key, owner, .. } = &self.identity;
        let release = Release::new(&**key, owner);
        let release = match self.fence() {
            0 => release,
            fence => release.fence(fence),
        };
        release.request_id(self.identity.id()).into()
    }
}

/// How long the end of a thread, or of the last handle outside of async code, waits for releases.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// How many releases are on their way.
#[derive(Default)]
pub(crate) struct Exit {
    pending: AtomicUsize,
    /// How many threads wait. To notify nobody costs a system call, too.
    waiting: Mutex<usize>,
    settled: Condvar,
}

/// A release on its way. Whoever gives up a lock takes one, and the thread of the locks drops it when that is done.
pub(crate) struct Pending(Arc<Exit>);

impl Exit {
    /// The calling thread waits for it when it ends, as the main thread does when `main` returns.
    pub fn begin(self: &Arc<Self>) -> Pending {
        // A thread that is ending already does not wait.
        let _ = AT_THREAD_END.try_with(|ends| ends.add(self));
        self.begin_in_background()
    }

    /// Only the last handle, and [`Locks::shutdown`](crate::Locks::shutdown), wait for it.
    pub fn begin_in_background(self: &Arc<Self>) -> Pending {
        self.pending.fetch_add(1, Ordering::SeqCst);
        Pending(Arc::clone(self))
    }

    pub fn is_settled(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Waits for all releases, but not for long: a server may be gone.
    pub fn wait(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        let waited = self
            .settled
            .wait_timeout_while(waiting, LONGEST_WAIT, |_| !self.is_settled());
        *waited.unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Self(exit) = self;
        if exit.pending.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // Who waits has looked at the number before, or will look at it again.
        if *exit.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            exit.settled.notify_all();
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd(RefCell::new(Vec::new())) };
}

/// What this thread waits for when it ends. A process that returns from `main`, or calls `exit`, ends its main thread
/// first: without this, guards dropped just before would keep their locks for the rest of a lease.
struct AtThreadEnd(RefCell<Vec<Weak<Exit>>>);

impl AtThreadEnd {
    fn add(&self, exit: &Arc<Exit>) {
        let mut exits = self.0.borrow_mut();
        let is_known = |known: &Weak<Exit>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(exit));
        if !exits.iter().any(is_known) {
            exits.retain(|known| known.strong_count() > 0);
            exits.push(Arc::downgrade(exit));
        }
    }
}

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        for exit in self.0.take().iter().filter_map(Weak::upgrade) {
            exit.wait();
        }
    }
}
