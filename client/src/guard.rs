//! A lock that is held, and work under it.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::command::{Owner, fenced};
use crate::driver::Handle;
use crate::error::{Error, Lost};
use crate::request::{Held, Operation};

/// A lock that is held. Release it with [`Guard::release`].
///
/// Dropping a guard releases the lock in the background: at once, without blocking, on any thread, with or without a
/// runtime, and also during a panic. The outcome is reported as an event only. A program that ends waits for that, for
/// at most 100 ms: see [`Locks::shutdown`](crate::Locks::shutdown).
///
/// A guard is lost when its lease may have expired: then [`Guard::lost`] resolves and [`Guard::token`] is cancelled. Stop
/// the work then, because others may get the lock. A process that was paused notices that late. Only a resource that
/// rejects a smaller [`Guard::fence`] than it has seen is safe against that, and data on the same server that is written
/// with [`Guard::query`] or [`Guard::fenced`].
#[must_use = "a guard that is dropped immediately releases the lock immediately"]
pub struct Guard {
    handle: Arc<Handle>,
    held: Arc<Held>,
    is_given_up: bool,
}

impl Guard {
    pub(crate) fn new(handle: &Arc<Handle>, held: Arc<Held>) -> Self {
        Self {
            handle: Arc::clone(handle),
            held,
            is_given_up: false,
        }
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.identity.key
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        &self.held.identity.owner
    }

    /// The fencing token, 1 to 2^53 - 1: larger for every later grant of this lock. Send it along with every write under
    /// the lock.
    pub fn fence(&self) -> u64 {
        self.held.fence()
    }

    /// Whether the lock is held for certain. Checks the clock only, nothing is sent.
    pub fn is_held(&self) -> bool {
        self.held.hold().is_held(BootInstant::now())
    }

    /// How long the lock is held for certain without further renewal. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.held.hold().remaining(BootInstant::now())
    }

    /// Resolves when the lock is lost: at the local deadline at the latest, even if the server is unresponsive.
    pub async fn lost(&self) -> Lost {
        // Nothing else cancels it while there is a guard.
        self.held.token.cancelled().await;
        self.lost_now().unwrap_or(Lost::LeaseExpired)
    }

    /// Cancelled when the lock is lost, and when the guard is released or dropped. Each call returns another child token:
    /// cancelling it affects no other.
    pub fn token(&self) -> CancellationToken {
        self.held.token.child_token()
    }

    /// A fenced write: `command`, which the server runs only if this guard's lock is held at that moment. So a process
    /// that was paused past the end of its lease cannot write after the next holder.
    ///
    /// It goes over the connection of the locks, which later requests share: it must not block. In a cluster, lock and
    /// data must share a hash tag: `{acct:7}:lock`, `{acct:7}`. The command is sent once. If no reply arrives within
    /// the response timeout, it may have run.
    ///
    /// ```no_run
    /// # async fn transfer(guard: redis_dlock_client::Guard) -> Result<(), redis_dlock_client::Error> {
    /// let balance: i64 = guard.query(&redis::cmd("DECRBY").arg("{acct:7}").arg(100)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock is lost, and nothing was run. Any other error is that of the command.
    pub async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Error> {
        let limit = self.handle.patience();
        let reply = self.handle.query(self.fenced(command), false, limit).await?;
        Ok(T::from_redis_value(reply).map_err(redis::RedisError::from)?)
    }

    /// The command that [`Guard::query`] sends, for another connection to the server that holds the lock, for pipelines
    /// and for transactions. The reply is that of the command.
    ///
    /// Scripts and functions begin with [`LUA_FENCE_CHECK`](crate::LUA_FENCE_CHECK), and write all or nothing:
    ///
    /// ```no_run
    /// # async fn transfer(guard: redis_dlock_client::Guard) -> Result<(), redis_dlock_client::Error> {
    /// # let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
    /// use redis_dlock_client::LUA_FENCE_CHECK;
    ///
    /// let script = format!(
    ///     "{LUA_FENCE_CHECK}
    ///      redis.call('DECRBY', KEYS[2], ARGV[3])
    ///      redis.call('INCRBY', KEYS[3], ARGV[3])"
    /// );
    /// redis::cmd("EVAL")
    ///     .arg(script)
    ///     .arg(3)
    ///     .arg(&[guard.key(), b"alice", b"bob"])
    ///     .arg(guard.owner())
    ///     .arg(guard.fence())
    ///     .arg(100)
    ///     .exec_async(&mut connection)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is sent before `query` or `query_async`"]
    pub fn fenced(&self, command: &redis::Cmd) -> redis::Cmd {
        fenced(self.key(), self.owner(), self.fence(), command)
    }

    /// Extends the lease to at least `lease` from now, never shortens it, and returns what remains.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost; any other error leaves the lease unchanged.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        if let Some(lost) = self.lost_now() {
            return Err(Error::Lost(lost));
        }
        let held = Arc::clone(&self.held);
        self.handle
            .ask(|reply| Operation::Extend {
                held,
                lease,
                min_fence: None,
                reply,
            })
            .await
    }

    /// The lease lasts to its end.
    pub(crate) fn stop_renewing(&self) {
        self.held.hold().stop_renewing();
    }

    /// Raises the fence.
    pub(crate) async fn raise(&self, lease: Duration, fence: u64) -> Result<(), Error> {
        let (held, before) = (Arc::clone(&self.held), self.fence());
        // Until the reply it may be the one or the other.
        self.held.set_fence(0);
        let raise = |reply| Operation::Extend {
            held,
            lease,
            min_fence: NonZeroU64::new(fence),
            reply,
        };
        let outcome = self.handle.ask(raise).await;
        match &outcome {
            Ok(_) => self.held.set_fence(fence),
            Err(error) if !error.is_ambiguous() => self.held.set_fence(before),
            Err(_) => {}
        }
        outcome.map(drop)
    }

    /// Releases the lock.
    ///
    /// `Ok` means that the lock was held until now: the server checks the fence. After a lost connection the release is
    /// sent again until the lease expires; this future resolves sooner, and the release continues in the background, as
    /// it does when this future is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was, or may have been, lost before the release: its lease expired, an administrator
    /// deleted it, or the server lost its data. [`Error::Unconfirmed`]: a reply was lost, and the server no longer knows
    /// the hold: either the release or a loss ended it. In a cluster, whose connections send requests again on their own,
    /// a loss that nothing else has revealed is also reported as unconfirmed. [`Error::Redis`]: the server could not
    /// be reached, or rejected the release, for too few replicas for instance.
    pub async fn release(mut self) -> Result<(), Error> {
        self.is_given_up = true;
        let (held, pending) = (Arc::clone(&self.held), self.handle.begin_release());
        let release = |reply| Operation::Release {
            held,
            keeps: true,
            reply: Some(reply),
            pending,
        };
        // The thread has made the hold, and is the one to free it.
        let handle = Arc::clone(&self.handle);
        drop(self);
        handle.ask(release).await
    }

    pub(crate) async fn run<T, E>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, RunError<T, E>> {
        let done = tokio::select! {
            biased;
            lost = self.lost() => return Err(RunError::Cancelled(lost)),
            done = work(&self) => done.map_err(RunError::Failed)?,
        };
        if let Some(lost) = self.lost_now() {
            return Err(RunError::Unprotected { lost, done });
        }
        match self.release().await {
            Err(Error::Lost(lost)) => Err(RunError::Unprotected { lost, done }),
            // The work was done while the lock was held, even if the lock may not be free yet.
            _ => Ok(done),
        }
    }

    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.held.hold().lost(BootInstant::now())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_given_up && self.handle.is_at_home() {
            self.handle.send(Operation::Release {
                held: Arc::clone(&self.held),
                keeps: false,
                reply: None,
                pending: self.handle.begin_release(),
            });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", self.owner())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// Why there is no result of work under a lock: see [`Lock::run`](crate::Lock::run) and
/// [`Lock::try_run`](crate::Lock::try_run). `A` is the error of the acquisition.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T, E = Infallible, A = Error> {
    /// The lock was not acquired, and the work not started.
    #[error("{0}")]
    NotAcquired(#[source] A),
    /// The lock was lost, and the work was cancelled at an `await`.
    #[error("the work was cancelled because the lock is lost: {0}")]
    Cancelled(Lost),
    /// The work was finished, but the lock was lost before its release: other holders may have worked at the same time.
    #[error("the lock was lost before the work was finished: {lost}")]
    Unprotected {
        /// Why the lock was lost.
        lost: Lost,
        /// The result of the work.
        done: T,
    },
    /// The work failed, and the lock was released.
    #[error("{0}")]
    Failed(E),
}

impl<T, A: From<Lost>> RunError<T, Infallible, A> {
    /// The error, without the result of unprotected work.
    pub fn into_error(self) -> A {
        match self {
            Self::NotAcquired(error) => error,
            Self::Cancelled(lost) | Self::Unprotected { lost, .. } => lost.into(),
            Self::Failed(never) => match never {},
        }
    }
}

impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        error.into_error()
    }
}

impl<T, E: fmt::Debug, A: fmt::Debug> fmt::Debug for RunError<T, E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => f.debug_tuple("NotAcquired").field(error).finish(),
            Self::Cancelled(lost) => f.debug_tuple("Cancelled").field(lost).finish(),
            Self::Unprotected { lost, .. } => f
                .debug_struct("Unprotected")
                .field("lost", lost)
                .finish_non_exhaustive(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}
