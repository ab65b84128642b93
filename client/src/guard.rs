use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::hold::{Action, LostReason};
use crate::lost::{LeaseStatus, lost};
use crate::owner::Owner;
use crate::release::release;
use crate::renewal::SharedHold;
use crate::renewal::notify_lost;

/// A lock that is held. Give it back with [`Guard::release`].
///
/// Dropped, it gives the lock back in the background: at once, without blocking, in any thread, with or
/// without a runtime, also during a panic. Nobody hears of the outcome then, and a process that ends first
/// leaves the lock to its lease.
///
/// A guard is lost when its lease may have ended: then [`Guard::lost`] resolves and [`Guard::token`] is
/// cancelled. What is done under the lock has to end then, for others may get the lock. A process that was
/// stopped for a while learns it late; only a resource that refuses a smaller [`Guard::fence`] than it has
/// seen is safe against that.
#[must_use = "a guard that is dropped at once gives the lock back at once"]
pub struct Guard {
    client: Arc<Client>,
    held: Arc<SharedHold>,
    is_settled: bool,
}

impl Guard {
    pub(crate) fn new(client: Arc<Client>, held: Arc<SharedHold>) -> Self {
        client.renewal_thread().watch(&held);
        Self {
            client,
            held,
            is_settled: false,
        }
    }

    /// The name of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.identity.key
    }

    /// Who holds it.
    pub fn owner(&self) -> &Owner {
        &self.held.identity.owner
    }

    /// The fencing token, 1 to 2^53 - 1: larger for every later grant of this lock. Send it along with what
    /// is written under the lock.
    pub fn fence(&self) -> u64 {
        self.held.fence
    }

    /// How often the owner held the lock when this guard was granted, this one included.
    pub fn holds(&self) -> u64 {
        self.held.holds
    }

    /// For how long the lock is certainly held, if nothing is renewed. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        let now = BootInstant::now();
        self.held.with(|hold| hold.remaining(now))
    }

    /// Whether the lock is certainly held. A look at the clock, nothing is sent.
    pub fn is_held(&self) -> bool {
        let now = BootInstant::now();
        self.held.with(|hold| hold.is_held(now))
    }

    /// Why the lock is lost; `None` as long as it is held.
    pub fn lost_reason(&self) -> Option<LostReason> {
        let now = BootInstant::now();
        self.held.with(|hold| hold.lost_reason(now))
    }

    /// Resolves when the lock is lost, at the local deadline at the latest, even when the server is silent.
    /// Needs no word of the thread in the background, as the token does, and cancels the token. Runs in a runtime of
    /// tokio, whose timers it needs.
    pub async fn lost(&self) -> LostReason {
        lost(&self.lost_token(), || self.lease_status()).await
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.client.renewal_thread().runtime()
    }

    /// Releases the lock after work under it.
    pub(crate) async fn finish<T>(self, done: T) -> Result<T, Error> {
        if let Some(reason) = self.lost_reason() {
            return Err(Error::Lost(reason));
        }
        match self.release().await {
            Err(error @ Error::Lost(_)) => Err(error),
            // The work was done while the lock was held, even if the lock may not be free yet.
            _ => Ok(done),
        }
    }

    pub(crate) fn lease_status(&self) -> LeaseStatus {
        self.lost_reason().map_or_else(|| Ok(self.remaining()), Err)
    }

    /// Cancelled when the lock is lost, by the thread in the background: see
    /// [`Settings::on_event`](crate::Settings::on_event) for what may hold it up. Not cancelled when the lock is
    /// released. Each call gives another token: who cancels one tells nobody else.
    pub fn token(&self) -> CancellationToken {
        self.lost_token().child_token()
    }

    /// Cancelled only by who finds out that the lock is lost.
    pub(crate) fn lost_token(&self) -> CancellationToken {
        self.held.token()
    }

    /// Prolongs the lease to at least `lease` from now, never shortens it, and tells what then remains.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lock is lost; any other error leaves it as it is.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        if let Some(reason) = self.lost_reason() {
            return Err(Error::Lost(reason));
        }
        let command = self.held.identity.extend(lease, self.held.fence);
        let sent_at = BootInstant::now();
        let answer = self
            .client
            .link()
            .query::<u64>(&command)
            .await
            .map(Duration::from_millis);
        // The time of now, not of before: somebody may have found the lock lost meanwhile, and it stays so.
        let action = self
            .held
            .with(|hold| hold.on_extended(sent_at, &answer, BootInstant::now()));
        if let Some(Action::NotifyLost(reason)) = action {
            notify_lost(&self.held, reason);
        }
        self.client.renewal_thread().watch(&self.held);
        if let Some(reason) = self.lost_reason() {
            return Err(Error::Lost(reason));
        }
        answer.map(|_| self.remaining())
    }

    /// Gives the lock back: the holds that the owner has left, 0 when the lock is given up.
    ///
    /// `Ok` also means that the lease lasted until now, by the clock: a server that has lost its data, or whose lock was
    /// broken by hand, answers the same. When the connection is lost, the
    /// same is sent again, until the lease ends or the client's patience does; in the latter case it goes on
    /// in the background. Dropped before it is done, it goes on there too.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was, or may have been, lost before it was given back. [`Error::Unconfirmed`]: the
    /// outcome is not known, for an answer was lost. [`Error::Redis`]: the server refused, for too few replicas for
    /// instance; it is tried again in the background, until the lease ends.
    pub async fn release(mut self) -> Result<u64, Error> {
        let to_do = self.held.with(|hold| hold.give_up(BootInstant::now()));
        self.client.renewal_thread().unwatch(&self.held);
        if let Some(reason) = to_do.lost_reason().filter(|_| !to_do.is_needed()) {
            self.is_settled = true;
            return Err(Error::Lost(reason));
        }
        let link = self.client.link();
        let outcome = release(&self.client, link, &self.held, to_do, self.client.retry_timeout()).await;
        // Otherwise the background goes on, when this guard is dropped.
        self.is_settled = !matches!(&outcome, Err(Error::Unconfirmed(_) | Error::Redis(_)));
        outcome
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_settled {
            self.client.let_go(Arc::clone(&self.held));
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
