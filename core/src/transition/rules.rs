//! What the transitions share: the lock with its queue, and how many may hold.

use crate::effects::Effects;
use crate::fence::{Fence, Fences};
use crate::lock::{Holder, Lock};
use crate::names::{Limit, LockNameRef};
use crate::time::LeaseClock;
use crate::waiting::Queue;
use crate::wire::Granted;

/// The parts of the state that a transition may change. The wait table is synchronized afterwards.
pub(super) struct Rules<'a> {
    pub(super) name: LockNameRef<'a>,
    pub(super) lock: &'a mut Lock,
    /// `None` if no request waits for the lock.
    pub(super) queue: Option<&'a mut Queue>,
    pub(super) fences: &'a mut Fences,
    /// The setting for the number of holders: see [`Occupancy::allows`].
    pub(super) max_holders: Option<usize>,
    /// The server may evict locks.
    pub(super) evictable: bool,
    /// See [`super::ServerState::lacks_replicas`].
    pub(super) lacks_replicas: Option<usize>,
    pub(super) clock: LeaseClock,
    pub(super) effects: &'a mut Effects,
}

impl Rules<'_> {
    #[inline]
    pub(super) fn expire_holders(&mut self) {
        let mut holders = self.lock.holders().iter();
        if !holders.all(|holder| holder.is_live(self.clock)) {
            expire_holders(self.lock, self.clock, self.effects);
        }
    }
}

pub(super) fn expire_holders(lock: &mut Lock, clock: LeaseClock, effects: &mut Effects) {
    lock.remove_if(
        |holder| !holder.is_live(clock),
        |holder| {
            effects.expired(holder.owner());
            effects.held(holder, clock);
        },
    );
}

/// What the grant rule depends on: the number of holders and the smallest limit among them.
#[derive(Clone, Copy)]
pub(super) struct Occupancy {
    pub(super) holders: usize,
    pub(super) limit: Limit,
    /// Besides, there are holders whose leases have expired.
    pub(super) has_expired: bool,
}

impl Occupancy {
    pub(super) const EMPTY: Self = Self {
        holders: 0,
        limit: Limit::SHARED,
        has_expired: false,
    };

    /// The holders whose lease has not expired.
    pub(super) fn of(lock: &Lock, clock: LeaseClock) -> Self {
        let live = lock.live_holders(clock);
        let occupancy = live.fold(Self::EMPTY, |occupancy, holder| occupancy.with(holder.limit));
        Self {
            has_expired: occupancy.holders < lock.holders().len(),
            ..occupancy
        }
    }

    /// With one more holder.
    pub(super) fn with(self, limit: Limit) -> Self {
        Self {
            holders: self.holders.saturating_add(1),
            limit: self.limit.min(limit),
            ..self
        }
    }

    /// Whether one more holder with this limit may be granted the lock. `max`: the most holders that a lock may have here.
    pub(super) fn allows(&self, limit: Limit, max: Option<usize>) -> bool {
        max.is_none_or(|max| self.holders < max) && self.with(limit).is_within_limit()
    }

    /// The grant rule: the number of holders is within the smallest limit among them.
    pub(super) fn is_within_limit(&self) -> bool {
        self.limit.allows(self.holders)
    }
}

/// The smallest fence that a request with this minimum may get: the holders may have fences above those of the name, if
/// RENAME brought them.
pub(super) fn above_holders(min_fence: Fence, lock: &Lock, clock: LeaseClock) -> Fence {
    let youngest = lock.live_holders(clock).last();
    youngest.map_or(min_fence, |holder| min_fence.max(holder.fence.saturating_add(1)))
}

pub(super) fn granted(holder: &Holder, clock: LeaseClock, waited_ms: u64) -> Granted {
    Granted {
        fence: holder.fence,
        holds: holder.holds(),
        lease_ms: holder.lease_ms(clock),
        waited_ms,
    }
}
