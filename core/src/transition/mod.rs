//! Transitions of a lock, one file a request.
//!
//! A transition validates before it changes anything: a request that is rejected, or not granted, has no side
//! effects. A transition that changes a lock first removes the holders whose lease has expired, and
//! replicates their removal, so a replica never exceeds the limit. A transition that frees capacity grants it
//! to waiters at once: no later request can overtake them.

mod acquire;
mod apply;
mod extend;
mod grant;
mod guard;
mod release;

use super::context::TransitionContext;
use super::deadlock::Found;
use super::effects::Effects;
use super::engine::Engine;
use super::error::Error;
use super::fence::Fences;
use super::limit::Limit;
use super::lock::{Holder, Lock};
use super::name::LockRef;
use super::outcome::{Acquired, Enqueued};
use super::queue::{Queue, Waiter};
use super::request::{Acquire, Extend, Release, Timeout};
use super::wait_table::WaitPolicy;

/// A change of one lock: see [`Engine::begin`]. Each method is a whole transition. Afterwards the wait table is
/// consistent and the effects say what to replicate, whom to wake and which events to publish, even if the
/// request itself was rejected.
#[derive(Debug)]
pub struct Transition<'a> {
    engine: &'a mut Engine,
    name: LockRef<'a>,
    lock: &'a mut Lock,
    cx: &'a TransitionContext,
    effects: &'a mut Effects,
}

impl<'a> Transition<'a> {
    pub(super) fn new(
        engine: &'a mut Engine,
        name: LockRef<'a>,
        lock: &'a mut Lock,
        cx: &'a TransitionContext,
        effects: &'a mut Effects,
    ) -> Self {
        Self {
            engine,
            name,
            lock,
            cx,
            effects,
        }
    }

    /// Grants a hold: always to a holder (re-entry), to a new owner when no request waits and the limits allow
    /// one more holder. A request that blocks is queued otherwise.
    pub fn acquire(&mut self, request: &Acquire<'_>, policy: WaitPolicy) -> Result<Acquired, Error> {
        self.engine.grace.observe_lease(request.lease_ms);
        let granted = self.step().acquire(request);
        self.sync_waiters();
        match (granted?, request.block) {
            (Some(granted), _) => Ok(Acquired::Granted(granted)),
            (None, None) => Ok(Acquired::NotGranted),
            (None, Some(timeout)) => self.enqueue(request, timeout, policy).map(Acquired::Queued),
        }
    }

    /// Releases holds and grants the lock to waiters. Returns how many holds the owner has left.
    pub fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let left = self.step().release(request);
        self.sync_waiters();
        left
    }

    /// Extends a lease. Returns what remains of it, in milliseconds.
    pub fn extend(&mut self, request: &Extend<'_>) -> Result<u64, Error> {
        self.engine.grace.observe_lease(request.lease_ms);
        let lease_ms = self.step().extend(request);
        self.sync_waiters();
        lease_ms
    }

    /// Releases a hold whose client disconnected before the grant reached it. Returns whether it still existed.
    pub fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        let was_held = self.step().rollback_grant(request);
        self.sync_waiters();
        was_held
    }

    /// Times out waiters, expires holders and grants the lock to waiters.
    pub fn on_timer(&mut self) {
        self.step().on_timer();
        self.sync_waiters();
    }

    /// Removes the holders whose lease has expired. Its waiters are left to [`Transition::on_timer`], for which
    /// they are due at the same time.
    pub fn expire_holders(&mut self) {
        expire_holders(self.lock, self.cx, self.effects);
    }

    #[inline(always)]
    fn step(&mut self) -> Step<'_> {
        Step {
            name: self.name,
            lock: self.lock,
            queue: self.engine.wait_table.begin_transition(self.name),
            fences: &mut self.engine.fences,
            cx: self.cx,
            effects: self.effects,
        }
    }

    #[inline]
    fn sync_waiters(&mut self) {
        if !self.engine.wait_table.is_empty() {
            self.engine.wait_table.sync(self.name, self.lock, self.cx);
        }
    }

    fn enqueue(
        &mut self,
        request: &Acquire<'_>,
        timeout: Timeout,
        policy: WaitPolicy,
    ) -> Result<Enqueued, Error> {
        let table = &mut self.engine.wait_table;
        let waiter = Waiter::new(request, timeout, self.cx.now);
        let enqueued = table.insert(self.name, waiter, policy)?;
        table.sync(self.name, self.lock, self.cx);
        if policy.detect_deadlocks && !enqueued.replaced {
            match table.find_deadlock(self.name, request.owner, self.cx) {
                Found::Nothing => {}
                Found::Unknown => self.effects.is_search_abandoned = true,
                Found::Deadlock(cycle) => {
                    table.withdraw(self.name, enqueued.ticket);
                    table.sync(self.name, self.lock, self.cx);
                    return Err(Error::Deadlock(Box::new(cycle)));
                }
            }
        }
        Ok(enqueued)
    }
}

/// The rules: a lock with its queue. The wait table is synchronized afterwards.
struct Step<'a> {
    name: LockRef<'a>,
    lock: &'a mut Lock,
    queue: &'a mut Queue,
    fences: &'a mut Fences,
    cx: &'a TransitionContext,
    effects: &'a mut Effects,
}

impl Step<'_> {
    #[inline]
    fn expire_holders(&mut self) {
        let mut holders = self.lock.holders().iter();
        if !holders.all(|holder| self.cx.is_live(holder)) {
            expire_holders(self.lock, self.cx, self.effects);
        }
    }
}

fn expire_holders(lock: &mut Lock, cx: &TransitionContext, effects: &mut Effects) {
    lock.remove_if(
        |holder| !cx.is_live(holder),
        |holder| {
            effects.expired(holder.owner());
            effects.held(holder, cx);
        },
    );
}

/// The index of the holder that makes the request, if the fence it gives is its own.
fn authorized(
    lock: &Lock,
    owner: &[u8],
    fence: Option<u64>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<usize, Error> {
    match lock.find(owner).filter(|(_, holder)| is_valid(holder)) {
        None if lock.holders().iter().any(is_valid) => Err(Error::NotOwner),
        None => Err(Error::NotHeld),
        Some((_, holder)) if fence.is_some_and(|fence| fence != holder.fence) => {
            Err(Error::Stale(holder.fence))
        }
        Some((index, _)) => Ok(index),
    }
}

/// As [`authorized`], to change the holder.
fn authorize<'a>(
    lock: &'a mut Lock,
    owner: &[u8],
    fence: Option<u64>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<&'a mut Holder, Error> {
    let index = authorized(lock, owner, fence, is_valid)?;
    lock.holders_mut().get_mut(index).ok_or_else(vanished)
}

/// The error for a holder that was there a moment ago: impossible.
fn vanished() -> Error {
    debug_assert!(false, "a live holder vanished during a transition");
    Error::NotHeld
}

/// What the grant rule depends on: the number of holders and the smallest limit among them.
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

    /// The holders whose lease has not expired.
    fn of(lock: &Lock, cx: &TransitionContext) -> Self {
        let live = lock.holders().iter().filter(|holder| cx.is_live(holder));
        live.fold(Self::EMPTY, |occupancy, holder| occupancy.with(holder.limit))
    }

    /// With one more holder.
    fn with(self, limit: Limit) -> Self {
        Self {
            holders: self.holders.saturating_add(1),
            limit: self.limit.min(limit),
        }
    }

    /// The grant rule: the number of holders is within the smallest limit among them.
    fn is_within_limit(&self) -> bool {
        self.limit.allows(self.holders)
    }
}
