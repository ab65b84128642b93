//! Every transition of a lock, one file a request.
//!
//! A step looks at everything before it changes anything: a request that is refused, or not granted,
//! leaves no trace. A step that changes a lock first removes the holders whose lease has ended, and tells
//! of it, so that a replica never has more holders than the primary. A step that frees something serves
//! the queue at once: nobody can come between.

mod acquire;
mod apply;
mod extend;
mod grant;
mod release;

pub use acquire::{Granted, acquire};
pub use apply::apply;
pub use extend::extend;
pub use grant::{on_timer, time_out_waiters};
pub use release::{apply_release, release, rollback_grant};

use super::effects::Effects;
use super::error::Error;
use super::limit::Limit;
use super::lock::{Holder, Lock};
use super::time::Instant;

/// The moment at which a step happens: the clock, read once, and how things stand with the server.
#[derive(Clone, Copy, Debug)]
pub struct TransitionContext {
    pub now: Instant,
    /// Begin and end of the last grace. Leases that ran when it began run at least to its end.
    pub grace_begin: Instant,
    pub grace_end: Instant,
    /// The server may evict locks, and that is not allowed: no new owners.
    pub evictable: bool,
}

impl TransitionContext {
    /// A moment without a grace on a server that keeps its locks.
    pub fn at(now: Instant) -> Self {
        Self {
            now,
            grace_begin: Instant::DISTANT_PAST,
            grace_end: Instant::DISTANT_PAST,
            evictable: false,
        }
    }

    /// When this lease ends. Every holder granted after a grace ends after it, so that the larger of the
    /// two is right for all, for ever; but for a lease that had ended before the grace began.
    pub fn lease_end(&self, holder: &Holder) -> Instant {
        if holder.lease_end > self.grace_begin {
            holder.lease_end.max(self.grace_end)
        } else {
            holder.lease_end
        }
    }

    /// What remains of a lease, in milliseconds, rounded down.
    pub fn lease_ms(&self, holder: &Holder) -> u64 {
        self.now.ms_until(self.lease_end(holder))
    }

    /// The first moment at which the lock changes by itself.
    pub fn first_lease_end(&self, lock: &Lock) -> Option<Instant> {
        lock.holders().iter().map(|holder| self.lease_end(holder)).min()
    }

    pub fn is_live(&self, holder: &Holder) -> bool {
        self.lease_end(holder) > self.now
    }

    fn grace_left_ms(&self) -> Option<u64> {
        (self.grace_end > self.now).then(|| self.now.ms_until_rounded_up(self.grace_end))
    }

    /// The longer of what remains of a lease and a new one.
    fn extended_lease_end(&self, holder: &Holder, lease_ms: u64) -> Instant {
        self.lease_end(holder).max(self.now.after_ms(lease_ms))
    }
}

/// The live holder that asks, if its fence is the one it gives.
fn authorize<'a>(
    lock: &'a mut Lock,
    owner: &[u8],
    fence: Option<u64>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<&'a mut Holder, Error> {
    match lock.get(owner).filter(|holder| is_valid(holder)) {
        None if lock.holders().iter().any(is_valid) => return Err(Error::NotOwner),
        None => return Err(Error::NotHeld),
        Some(holder) if fence.is_some_and(|fence| fence != holder.fence) => {
            return Err(Error::Stale(holder.fence));
        }
        Some(_) => {}
    }
    lock.get_mut(owner).ok_or(Error::NotHeld)
}

/// Removes the holders whose lease has ended.
pub fn expire_holders(lock: &mut Lock, cx: &TransitionContext, effects: &mut Effects) {
    lock.remove_if(
        |holder| !cx.is_live(holder),
        |holder| {
            effects.expired(holder.owner());
            effects.held(holder, cx);
        },
    );
}

/// What the grant rule looks at: how many hold the lock, and the smallest limit among them.
#[derive(Clone, Copy)]
struct Occupancy {
    holders: usize,
    limit: Limit,
}

impl Occupancy {
    const EMPTY: Self = Self {
        holders: 0,
        limit: Limit::SHARED,
    };

    /// Who holds the lock now: those whose lease has ended do not.
    fn of(lock: &Lock, cx: &TransitionContext) -> Self {
        let live = lock.holders().iter().filter(|holder| cx.is_live(holder));
        live.fold(Self::EMPTY, |so_far, holder| so_far.with(holder.limit))
    }

    /// With one more holder.
    fn with(self, limit: Limit) -> Self {
        Self {
            holders: self.holders.saturating_add(1),
            limit: self.limit.min(limit),
        }
    }

    /// The grant rule: so many holders as there are must be within the smallest limit among them.
    fn is_within_limit(&self) -> bool {
        self.limit.allows(self.holders)
    }
}
