//! A lock that is held, and work under it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::background::Handle;
use crate::command::{Owner, fenced, milliseconds, rounded_up};
use crate::error::{Error, Lost};
use crate::events::{End, EventKind};
use crate::hold::{Backoff, BootInstant, PendingRelease, ReleaseStep};
use crate::link::{Link, Sent};
use crate::session::{GIVEN_BACK_FOR, LATE_COPIES, Pending, Session};
use crate::table::Held;

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

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    fn session(&self) -> &Arc<Session> {
        self.handle.session()
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.request.key
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        self.held.request.owner()
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
        self.held.token().cancelled().await;
        self.lost_now().unwrap_or(Lost::LeaseExpired)
    }

    /// Cancelled when the lock is lost, and when the guard is released or dropped. Each call returns another child token:
    /// cancelling it affects no other.
    pub fn token(&self) -> CancellationToken {
        self.held.token().child_token()
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
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        self.session().check_background()?;
        let (session, command) = (Arc::clone(self.session()), self.fenced(command));
        let limit = session.patience();
        let querying = |_| async move { session.query(command, false, limit).await };
        let reply = self.session().run(querying).await;
        if let Err(lost @ Error::Lost(_)) = &reply {
            let _ = self
                .session()
                .on_extended(&self.held, BootInstant::now(), Err(lost.clone()));
        }
        let reply = reply?;
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
        self.session().check_background()?;
        if lease.is_zero() {
            return Err(Error::Invalid("the lease must be longer than 0".into()));
        }
        let (session, held, lease) = (
            Arc::clone(self.session()),
            Arc::clone(&self.held),
            rounded_up(lease),
        );
        let extending = |_| extend(session, held, move |held, now| held.extend_within(lease, now));
        self.session().run(extending).await
    }

    /// The lease lasts to its end: it is not renewed from now on.
    pub fn stop_renewing(&self) {
        self.held.hold().stop_renewing();
    }

    /// For a lock on several servers, acquired with [`Lock::min_fence`](crate::Lock::min_fence): raises the fence to at
    /// least this one, and extends the lease. While it is not known whether the server has raised it, [`Guard::fence`]
    /// is 0.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]. Any other error of the server means that the fence is as before; without a reply it is not known.
    pub async fn raise_fence(&self, lease: Duration, fence: u64) -> Result<(), Error> {
        self.session().check_background()?;
        if self.held.request.min_fence.is_none() {
            let text = "only the fence of a lock that was acquired with min_fence can be raised";
            return Err(Error::Invalid(text.into()));
        }
        let (session, held, before) = (Arc::clone(self.session()), Arc::clone(&self.held), self.fence());
        // Until the reply it may be the one or the other.
        self.held.set_fence(0);
        let raise = move |held: &Held, now| {
            let mut command = held.extend_within(lease, now);
            command.arg("MINFENCE").arg(fence);
            command
        };
        let raising = |_| extend(session, held, raise);
        let outcome = self.session().run(raising).await;
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
    /// the hold: either the release or a loss ended it; or the server could not be reached, or was not ready, for three
    /// response timeouts. In a cluster, whose connections send requests again on their own, a loss that nothing else has
    /// revealed is also reported as unconfirmed. [`Error::Redis`]: the server rejected the release, for a missing right for
    /// instance.
    pub async fn release(mut self) -> Result<(), Error> {
        self.is_given_up = true;
        self.session().check_background()?;
        let releasing = Releasing::begin(self.session(), &self.held, true)?;
        // Apart, so that a task is no larger while it waits for a lock.
        Box::pin(self.session().run(|link| releasing.run_patiently(link))).await
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

    /// Why the lock is lost, if it is. Checks the clock only, nothing is sent.
    pub fn lost_now(&self) -> Option<Lost> {
        self.held.hold().lost(BootInstant::now())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_given_up && self.session().is_at_home() {
            // Nothing is left of one that is lost.
            let _ = Releasing::begin(self.session(), &self.held, false);
        }
    }
}

/// Sends an EXTEND, and sends it again after an error that may pass, while a caller has patience: what remains of the lease.
async fn extend(
    session: Arc<Session>,
    held: Arc<Held>,
    command: impl Fn(&Held, BootInstant) -> Cmd + Send,
) -> Result<Duration, Error> {
    let (until, mut backoff) = (BootInstant::now() + session.patience(), Backoff::default());
    loop {
        let mut sent_at = BootInstant::now();
        let extend = || {
            sent_at = BootInstant::now();
            command(&held, sent_at)
        };
        let reply = session.send(extend).await;
        let may_pass = reply.as_ref().is_err_and(Error::is_transient);
        if !may_pass || BootInstant::now() >= until {
            return session.on_extended(&held, sent_at, reply);
        }
        sleep(backoff.pause()).await;
    }
}

/// A hold that its guard has given up. If this is dropped before there is an outcome, the background goes on with it.
struct Releasing(Option<Release>);

struct Release {
    session: Arc<Session>,
    held: Arc<Held>,
    state: PendingRelease,
    begun: BootInstant,
    /// How long it was held.
    time: Duration,
    /// The sending that has no reply yet.
    sent: Option<Sent>,
    /// Why it is not released yet.
    last: Option<Box<Error>>,
    backoff: Backoff,
    _pending: Pending,
}

/// Whether the lock was held until now, and what remains of its lease if it is kept.
type Released = (Result<(), Error>, Option<Duration>);

impl Releasing {
    /// # Errors
    ///
    /// [`Error::Lost`]: it was lost before, and is told so now at the latest.
    fn begin(session: &Arc<Session>, held: &Arc<Held>, keeps: bool) -> Result<Self, Error> {
        let now = BootInstant::now();
        let (state, time) = {
            let mut hold = held.hold();
            (hold.give_up(now, keeps), hold.held(now))
        };
        let state = state.map_err(|lost| {
            session.lose(held, lost);
            Error::Lost(lost)
        })?;
        held.end();
        Ok(Self(Some(Release {
            session: Arc::clone(session),
            held: Arc::clone(held),
            state,
            begun: now,
            time,
            sent: None,
            last: None,
            backoff: Backoff::default(),
            _pending: session.exit.begin(),
        })))
    }

    /// Until the caller has waited long enough.
    async fn run_patiently(mut self, link: Arc<Link>) -> Result<(), Error> {
        let Some(release) = &mut self.0 else {
            return Ok(());
        };
        let until = release.begun + release.session.patience();
        match release.run(link, Some(until)).await {
            Some(released) => self.0.take().map_or(Ok(()), |release| release.finish(released)),
            None => {
                let last = release
                    .last
                    .take()
                    .unwrap_or_else(|| Box::new(Error::no_response()));
                Err(Error::Unconfirmed(last))
            }
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(mut release) = self.0.take() {
            let session = Arc::clone(&release.session);
            session.spawn(async move {
                let link = Arc::clone(release.session.links.background());
                if let Some(released) = release.run(link, None).await {
                    let _ = release.finish(released);
                }
            });
        }
    }
}

impl Release {
    /// Sends RELEASE, or the EXTEND that keeps the lock, until there is an outcome, or the lease is over. None: there is no
    /// outcome in time.
    async fn run(&mut self, mut link: Arc<Link>, by: Option<BootInstant>) -> Option<Released> {
        loop {
            if self.sent.is_none() {
                match link.turn().await {
                    Ok(turn) => self.sent = Some(turn.send(self.command())),
                    Err(error) if BootInstant::now() < self.state.deadline() => {
                        self.last = Some(Box::new(error))
                    }
                    Err(error) => return Some((Err(self.state.failed(error)), None)),
                }
            }
            let mut is_lost = true;
            if let Some(sent) = &mut self.sent {
                let reply = sent.reply().await;
                self.sent = None;
                let remaining = reply.as_ref().ok().and_then(milliseconds);
                is_lost = reply.as_ref().is_err_and(Error::is_ambiguous);
                let now = BootInstant::now();
                match self.state.on_reply(reply.map(drop), self.session.is_cluster, now) {
                    ReleaseStep::Done(outcome) => return Some((outcome, remaining)),
                    ReleaseStep::Retry(error) => self.last = Some(Box::new(error)),
                }
            }
            if by.is_some_and(|by| BootInstant::now() >= by) {
                return None;
            }
            Box::pin(sleep(self.backoff.pause_after(is_lost))).await;
            link = self.session.links.here();
        }
    }

    fn command(&self) -> Cmd {
        match self.state.keep_until {
            Some(until) => {
                let rest = until - BootInstant::now();
                self.held.extend(rest.max(Duration::from_millis(1)))
            }
            None => self.held.release(),
        }
    }

    fn finish(self, (outcome, remaining): Released) -> Result<(), Error> {
        let request = &self.held.request;
        let kept = self.state.keep_until.filter(|_| outcome.is_ok());
        let kept = kept.map(|until| (until, until - BootInstant::now()));
        let ended = || EventKind::Ended {
            how: match (&outcome, kept) {
                (Ok(()), Some((_, rest))) => End::Kept { rest },
                (Ok(()), None) => End::Released,
                (Err(Error::Lost(lost)), _) => End::Lost(*lost),
                (Err(error), _) => End::Unconfirmed(error.clone()),
            },
            held: self.time,
        };
        self.session.report(request, ended);
        self.session.table().leave(request.number);
        let remaining = remaining.unwrap_or_default();
        if !is_told(&outcome) {
            // An EXTEND without a reply may have made the lease longer than is known here.
            let pending = self.session.exit.begin_in_background();
            let (request, has_copies) = (Arc::clone(request), self.held.has_copies());
            self.session.give_back(request, None, has_copies, pending);
            return outcome;
        }
        match kept {
            // The lease lasts longer.
            Some((until, rest)) if remaining > rest + Duration::from_millis(1) => {
                self.give_back_at(until, until + (remaining - rest));
            }
            // A copy that arrives now would be granted to nobody.
            None if self.held.has_copies() => {
                let at = BootInstant::now() + LATE_COPIES;
                self.give_back_at(at, at + GIVEN_BACK_FOR);
            }
            _ => {}
        }
        outcome
    }

    /// A process that ends does not wait that long.
    fn give_back_at(&self, at: BootInstant, until: BootInstant) {
        let (session, held) = (Arc::clone(&self.session), Arc::clone(&self.held));
        self.session.spawn(async move {
            sleep(at - BootInstant::now()).await;
            session.release_until(&held.request, until).await;
        });
    }
}

/// Whether the server has said what became of a release, and has nothing of the hold.
fn is_told(outcome: &Result<(), Error>) -> bool {
    let lost = match outcome {
        Ok(()) => return true,
        Err(Error::Unconfirmed(last)) => last.lost(),
        Err(error) => error.lost(),
    };
    lost.is_some_and(Lost::leaves_nothing)
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
