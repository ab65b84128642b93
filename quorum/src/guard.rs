use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::clock::BootInstant;
use crate::command::{Grant, Milliseconds, fenced};
use crate::error::{Error, LostReason};
use crate::hold::{Action, Hold};
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;
use crate::parts::GuardParts;
use crate::release::{begin_release, give_up, release};
use crate::renewal::{SharedHold, notify_lost};
use crate::run::{RunError, after_release};

/// A lock that is held. Release it with [`Guard::release`].
///
/// Dropping a guard releases the lock in the background: at once, without blocking, on any thread, with or without a
/// runtime, and also during a panic. The outcome is reported as an event only, and a process that ends before the release
/// was sent leaves the lock to its lease: see [`Locks::settle`](crate::Locks::settle).
///
/// A guard is lost when its lease may have expired: then [`Guard::lost`] resolves and [`Guard::token`] is cancelled. Stop
/// the work then, because others may get the lock. A process that was paused notices that late; only a resource that
/// rejects a smaller [`Guard::fence`] than it has seen is safe against that; data on the same server is, if it is written
/// with [`Guard::fenced`].
#[must_use = "a guard that is dropped immediately releases the lock immediately"]
pub struct Guard {
    pub(crate) client: Arc<Client>,
    pub(crate) held: Arc<SharedHold>,
    pub(crate) is_settled: bool,
}

impl Guard {
    /// For a grant that replied to a request sent at `sent_at`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the reply took longer than the lease. What may be left is released in the background.
    pub(crate) fn granted(
        client: &Arc<Client>,
        identity: RequestIdentity,
        grant: Grant,
        sent_at: BootInstant,
        options: &Options,
        is_repeated: bool,
    ) -> Result<Self, Error> {
        let now = BootInstant::now();
        let certain = |time| client.renewal_context.certain(time);
        let hold = Hold::granted(
            options.plan(now),
            sent_at,
            certain(grant.waited),
            certain(grant.lease),
        );
        let lost_reason = hold.lost_reason(now);
        let held = SharedHold::new(&client.renewal_context, identity, grant, is_repeated, hold);
        client.renewal_thread.watch(&held);
        let guard = Self {
            client: Arc::clone(client),
            held,
            is_settled: false,
        };
        lost_reason.map_or(Ok(guard), |reason| Err(Error::Lost(reason)))
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

    /// How many holds the owner had when this guard was granted, including this one.
    pub fn holds(&self) -> u64 {
        self.held.holds
    }

    /// A fenced write: `command`, which the server runs only if this guard's lock is held in that very moment. A process
    /// that was paused past the end of its lease can thus not write after the next holder.
    ///
    /// Send it on any connection to the server that holds the lock, also in a pipeline, a transaction or on a cluster
    /// connection of redis-rs, which finds the node by the lock's key. In a cluster, lock and data must share a hash tag:
    /// `{acct:7}:lock`, `{acct:7}`. The reply is that of the command.
    ///
    /// # Errors
    ///
    /// If the lock is lost, the error converts to [`Error::NotHeld`], [`Error::NotOwner`] or [`Error::Stale`]: then
    /// [`Error::is_lost`], and nothing was run. Any other error is that of the command. After a lost connection the
    /// command may have run. It is not idempotent by itself, and a cluster connection of redis-rs sends it again on its
    /// own unless its `retries` are 0.
    #[must_use = "nothing is sent before `query` or `query_async`"]
    pub fn fenced(&self, command: &redis::Cmd) -> redis::Cmd {
        fenced(self.key(), self.owner(), self.fence(), command)
    }

    /// The owner and the fence: the first arguments, `ARGV[1]` and `ARGV[2]`, of a script or function that begins with
    /// [`LUA_FENCE_CHECK`](crate::LUA_FENCE_CHECK) and whose first key is that of the lock. It writes all or nothing.
    ///
    /// ```no_run
    /// # async fn transfer(guard: redis_dlock_quorum::Guard) -> Result<(), redis_dlock_quorum::Error> {
    /// # let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
    /// use redis_dlock_quorum::LUA_FENCE_CHECK;
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
    ///     .arg(guard.script_args())
    ///     .arg(100)
    ///     .exec_async(&mut connection)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn script_args(&self) -> (&Owner, u64) {
        (self.owner(), self.fence())
    }

    /// How long the lock is held for certain without further renewal. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.held.now(|hold, now| hold.remaining(now))
    }

    /// Whether the lock is held for certain. Checks the clock only, nothing is sent.
    pub fn is_held(&self) -> bool {
        self.held.now(|hold, now| hold.is_held(now))
    }

    /// Why the lock is lost; `None` while it is held.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.held.now(|hold, now| hold.lost_reason(now))
    }

    /// Resolves when the lock is lost: at the local deadline at the latest, even if the server is unresponsive.
    pub async fn lost(&self) -> LostReason {
        // Nothing else cancels it while there is a guard.
        self.held.token.cancelled().await;
        self.lost_reason().unwrap_or(LostReason::LeaseExpired)
    }

    /// A view of this guard for workers that do not own it.
    pub fn watch(&self) -> GuardWatch {
        GuardWatch(Arc::clone(&self.held))
    }

    /// Cancelled when the lock is lost, and when the guard is released or dropped: [`Guard::watch`] says which. Each call
    /// returns another child token: cancelling it affects no other.
    pub fn token(&self) -> CancellationToken {
        self.held.token.child_token()
    }

    /// Extends the lease to at least `lease` from now, never shortens it, and returns what remains.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost; any other error leaves the lease unchanged.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        if let Some(reason) = self.lost_reason() {
            return Err(Error::Lost(reason));
        }
        extend(&self.client, &self.held, self.held.extend(lease)).await
    }

    /// Gives the hold away without releasing it: nothing renews it until [`Locks::adopt`](crate::Locks::adopt) continues
    /// it, here or in another process. If nobody does, it ends with its lease.
    pub fn into_parts(mut self) -> GuardParts {
        self.held.give_up(BootInstant::now());
        self.client.renewal_thread.unwatch(&self.held);
        self.is_settled = true;
        GuardParts::of(&self.held)
    }

    /// Releases the lock, and returns how many holds the owner has left: 0 when it has given the lock up. More than that
    /// also if the lock is kept: see [`Lock::at_least`](crate::Lock::at_least).
    ///
    /// `Ok` means that the lock was held until now: the server checks the fence. After a lost connection the release is
    /// retried until the lease expires or the client's `retry_timeout` is over; then it continues in the background. It
    /// also continues there when this future is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was, or may have been, lost before the release: its lease expired, an administrator
    /// deleted it, or the server lost its data. [`Error::Unconfirmed`]: a reply was lost, and the server does not know the
    /// hold any more: either the release or a loss ended it. In a cluster, whose connections resend requests on their
    /// own, a loss that nothing else has revealed is also reported as unconfirmed. [`Error::Redis`]: the server could not
    /// be reached, or rejected the release, for too few replicas for instance; it is retried in the background until the
    /// lease expires.
    pub async fn release(self) -> Result<u64, Error> {
        self.release_or_keep(true).await
    }

    /// As [`Guard::release`], but the lock is not kept for the time of [`Lock::at_least`](crate::Lock::at_least): the work
    /// has failed, and others may try it at once.
    pub async fn release_at_once(self) -> Result<u64, Error> {
        self.release_or_keep(false).await
    }

    async fn release_or_keep(mut self, keeps: bool) -> Result<u64, Error> {
        let begun = begin_release(&self.client, &self.held, keeps);
        let pending = begun.inspect_err(|_| self.is_settled = true)?;
        let is_kept = pending.keeps_for.is_some();
        let (link, retry_timeout) = (&self.client.link, self.client.retry_timeout);
        let outcome = release(&self.client, link, &self.held, pending, retry_timeout).await;
        // Otherwise it continues in the background when this guard is dropped.
        self.is_settled = is_kept || !matches!(&outcome, Err(Error::Unconfirmed(_) | Error::Redis(_)));
        outcome
    }

    /// Runs `work` under the lock, then releases it. When the lock is lost, the work is cancelled: its future is dropped
    /// at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError::Cancelled`] and [`RunError::Unprotected`]: the lock was lost.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, RunError<T>> {
        let done = tokio::select! {
            biased;
            reason = self.lost() => return Err(RunError::Cancelled(reason)),
            done = work(&self) => done,
        };
        self.finish(done).await
    }

    pub(crate) async fn finish<T>(self, done: T) -> Result<T, RunError<T>> {
        match self.lost_reason() {
            // Released in the background.
            Some(reason) => Err(RunError::Unprotected { reason, done }),
            None => after_release(done, self.release().await),
        }
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.client.renewal_thread.runtime()
    }
}

/// Extends the lease of a hold, and returns what remains.
pub(crate) async fn extend(
    client: &Client,
    held: &Arc<SharedHold>,
    command: redis::Cmd,
) -> Result<Duration, Error> {
    let sent_at = BootInstant::now();
    let reply = client.link.query(&command).await;
    let reply = reply.map(|Milliseconds(lease)| held.context.certain(lease));
    // The clock is read while the hold is locked: it may have been found lost meanwhile, and then it stays lost.
    let (action, lost_reason, remaining) = held.now(|hold, now| {
        let action = hold.on_extended(sent_at, &reply, now);
        (action, hold.lost_reason(now), hold.remaining(now))
    });
    if let Some(Action::NotifyLost(reason)) = action {
        notify_lost(held, reason);
    }
    client.renewal_thread.watch(held);
    match (lost_reason, reply) {
        (Some(reason), _) => Err(Error::Lost(reason)),
        (None, Ok(_)) => Ok(remaining),
        (None, Err(error)) => Err(error.at_server(client.address())),
    }
}

/// A view of a [`Guard`], which it does not keep. Cheap to clone.
#[derive(Clone)]
pub struct GuardWatch(Arc<SharedHold>);

impl GuardWatch {
    /// Whether the lock is held for certain: see [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.0.now(|hold, now| hold.is_held(now))
    }

    /// Why the lock is lost; `None` while it is held, and if the guard was released or dropped before.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.now(|hold, now| hold.lost_reason(now))
    }

    /// Cancelled when the lock is lost or released: see [`Guard::token`].
    pub fn token(&self) -> CancellationToken {
        self.0.token.child_token()
    }
}

impl fmt::Debug for GuardWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardWatch")
            .field("is_held", &self.is_held())
            .field("lost_reason", &self.lost_reason())
            .finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_settled {
            let releasing = give_up(&self.client, Arc::clone(&self.held));
            // The outcome is reported as an event.
            self.client.renewal_thread.spawn(async { drop(releasing.await) });
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

/// Renews the lease of a hold, and makes a guard of it.
pub(crate) async fn adopt(client: &Arc<Client>, parts: GuardParts) -> Result<Guard, Error> {
    client.warm_up();
    let identity = RequestIdentity {
        key: parts.key.into(),
        owner: parts.owner,
        id: parts.request_id,
    };
    let command = identity.extend(parts.lease, parts.fence);
    let sent_at = BootInstant::now();
    let reply = client.link.query(&command).await;
    let Milliseconds(remaining) = reply.map_err(|error| match error.reported_loss() {
        Some(reason) => Error::Lost(reason),
        None => error.at_server(client.address()),
    })?;
    let GuardParts {
        fence, holds, lease, ..
    } = parts;
    let grant = Grant {
        fence,
        holds,
        lease: remaining,
        waited: Duration::ZERO,
    };
    let options = Options {
        lease,
        ..Options::default()
    };
    // Whether the request was repeated is not known here.
    Guard::granted(client, identity, grant, sent_at, &options, true)
}
