//! Transitions of a lock, a file each; `rules`, `authorize` and `grant_waiters` are what they share.
//!
//! A transition validates before it changes anything: a request that is rejected, or not granted, has no side
//! effects. A transition that changes a lock first removes the holders whose lease has expired, and
//! replicates their removal, so a replica never exceeds the limit. A transition that frees capacity grants it
//! to waiters at once: no later request can overtake them.

mod acquire;
mod apply;
mod authorize;
mod extend;
mod grant_waiters;
mod guard;
mod held_back_reply;
mod inboxes;
mod policy;
mod release;
mod replicas;
mod rules;
mod server_state;
mod timer;

use crate::deadlock::Found;
use crate::effects::{Answer, Effects};
use crate::fence::Fence;
use crate::lock::Lock;
use crate::names::LockNameRef;
use crate::time::{Inputs, LeaseClock};
use crate::waiting::{Room, Waiter};
use crate::wire::{Acquire, Acquired, Caller, Error, Extend, MAX_AHEAD, Outcome, Release, Wait};
pub use apply::maxima_of_change;
pub use policy::Policy;
pub use replicas::{Offset, Replicas};
use rules::{Rules, expire_holders};
pub use server_state::{Checkpoint, ServerState};

/// A change of one lock: see [`ServerState::begin`]. Each method is a whole transition. Afterwards the wait table is
/// consistent and the effects say what to replicate, whom to wake and which events to publish, even if the
/// request itself was rejected.
pub struct Transition<'a> {
    server: &'a mut ServerState,
    inputs: &'a Inputs<'a>,
    clock: LeaseClock,
    name: LockNameRef<'a>,
    lock: &'a mut Lock,
    effects: &'a mut Effects,
    /// Requests waited for the lock when the transition began.
    has_queue: bool,
    /// Something is due in a queue: what looks like a deadlock may be none.
    is_behind: bool,
}

impl ServerState {
    /// Begins a transition of the lock called `name`, the one door to a decision. Does what has to come first: starts a
    /// pending grace period, advances the fence counter, claims the cluster slot, clears `effects`.
    #[inline]
    pub fn begin<'a>(
        &'a mut self,
        inputs: &'a Inputs<'a>,
        name: LockNameRef<'a>,
        lock: &'a mut Lock,
        effects: &'a mut Effects,
    ) -> Transition<'a> {
        if self.is_term_pending {
            self.tick(inputs);
        }
        let clock = self.grace.clock(inputs.now);
        effects.begin(clock, inputs.must_encode);
        if let Some(slot) = inputs.slot {
            self.claim_slot(slot, inputs);
        }
        Transition {
            server: self,
            inputs,
            clock,
            name,
            lock,
            effects,
            has_queue: false,
            is_behind: false,
        }
    }
}

impl Transition<'_> {
    /// Queues are behind: something is due there. The search for deadlocks is abandoned.
    pub fn queues_are_behind(&mut self) {
        self.is_behind = true;
    }

    /// Grants a hold: always to a holder (re-entry), to a new owner when no request waits and the limits allow
    /// one more holder. A request that waits is queued otherwise, after a search for deadlocks. `user`: who sends it, if it
    /// names an inbox.
    pub fn acquire(&mut self, request: &Acquire<'_>, user: &[u8]) -> Result<Acquired, Error> {
        self.server.grace.observe_lease(request.lease_ms);
        let inbox = if self.server.holds_back() {
            Some(self.inbox_of(request.wait, user)?)
        } else {
            None
        };
        let min_fence = self.check_min_fence(request.min_fence);
        let granted = self.rules().acquire(request, min_fence);
        self.sync_waiters();
        match (granted?, request.wait) {
            (Some(granted), _) => Ok(match inbox {
                None => Acquired::Granted(granted),
                Some(inbox) => self.hold_back(request, inbox, Answer::Granted(granted)),
            }),
            (None, None) => {
                self.effects.outcome = Outcome::NotGranted;
                Ok(Acquired::NotGranted)
            }
            (None, Some(wait)) => self.enqueue(request, wait, user),
        }
    }

    /// Releases holds and grants the lock to waiters. Returns how many holds the owner has left.
    pub fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let remaining = self.rules().release(request);
        self.sync_waiters();
        if let Err(Error::NotHeld | Error::NotOwner | Error::Stale) = &remaining {
            self.effects.outcome = Outcome::LateRelease;
        }
        remaining
    }

    /// Extends a lease. Returns what remains of it, in milliseconds, unless that [is held back](Self::is_held_back).
    pub fn extend(&mut self, request: &Extend<'_>) -> Result<u64, Error> {
        self.server.grace.observe_lease(request.lease_ms);
        let min_fence = self.check_min_fence(request.min_fence);
        let lease_ms = self.rules().extend(request, min_fence);
        self.sync_waiters();
        if self.server.holds_back() {
            self.hold_back_lease(request, lease_ms.as_ref().ok());
        }
        lease_ms
    }

    /// Releases a hold whose client disconnected before the grant reached it. Returns whether it still existed.
    pub fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        let was_held = self.rules().rollback_grant(request);
        self.sync_waiters();
        if was_held {
            self.effects.outcome = Outcome::RolledBack;
        }
        was_held
    }

    /// Times out waiters, expires holders and grants the lock to waiters.
    pub fn on_timer(&mut self) {
        self.rules().on_timer();
        self.sync_waiters();
    }

    /// Removes the holders whose lease has expired. Its waiters are left to [`Transition::on_timer`], for which
    /// they are due at the same time.
    pub fn expire_holders(&mut self) {
        expire_holders(self.lock, self.clock, self.effects);
    }

    /// What it works on, for checks.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn parts(&self) -> (&ServerState, LockNameRef<'_>, &Lock, &Effects) {
        (self.server, self.name, self.lock, self.effects)
    }

    #[inline(always)]
    fn rules(&mut self) -> Rules<'_> {
        let lacks_replicas = self.server.lacks_replicas();
        let queue = self.server.wait_table.queue_mut(self.name);
        self.has_queue = queue.is_some();
        Rules {
            name: self.name,
            lock: self.lock,
            queue,
            fences: &mut self.server.fences,
            max_holders: self.server.policy.max_holders,
            evictable: self.server.policy.evictable,
            lacks_replicas,
            clock: self.clock,
            effects: self.effects,
        }
    }

    #[inline]
    fn sync_waiters(&mut self) {
        if self.has_queue {
            self.server.wait_table.sync(self.name, self.lock, self.clock);
            self.effects.may_be_due = true;
        }
    }

    /// Whether a request may ask for this fence.
    fn check_min_fence(&self, min_fence: Option<Fence>) -> Result<(), Error> {
        let Some(min) = min_fence else { return Ok(()) };
        let wall_clock = || self.inputs.environment.wall_clock();
        match self.server.max_min_fence(wall_clock) {
            None => Err(Error::NoQuorum),
            Some(max) if min > max => Err(Error::FenceTooLarge(max)),
            Some(_) => Ok(()),
        }
    }

    fn enqueue(&mut self, request: &Acquire<'_>, wait: Wait<'_>, user: &[u8]) -> Result<Acquired, Error> {
        let ServerState {
            policy,
            wait_table: table,
            inboxes,
            ..
        } = &mut *self.server;
        let caller = Caller {
            db: self.name.db,
            user,
        };
        let inbox = inboxes.of(wait.inbox, caller)?;
        let waiter = Waiter::new(request, wait.timeout, inbox, self.clock.now);
        let room = Room {
            per_lock: policy.max_waiters_per_lock,
            max: policy.max_waiters,
            // This transition may have answered some.
            answers: inboxes.answers().saturating_add(self.effects.wakes.len()),
        };
        let inserted = table.insert(self.name, waiter, room, |inbox| inboxes.has_name(inbox))?;
        if self.clock.grace_left_ms().is_some() {
            table.recheck_holders(self.name);
        }
        table.sync(self.name, self.lock, self.clock);
        if policy.detect_deadlocks && inserted.replaced.is_none() {
            let found = if self.is_behind {
                Found::Unknown
            } else {
                table.find_deadlock(self.name, request.owner, self.clock)
            };
            match found {
                Found::Nothing => {}
                Found::Unknown => self.effects.is_search_abandoned = true,
                Found::Impossible(what) => self.effects.internal_error(what),
                // Some of those who seem to wait are about to leave.
                Found::Deadlock(_) if inboxes.is_clearing() => self.effects.is_search_abandoned = true,
                Found::Deadlock(cycle) => {
                    table.withdraw(self.name, inserted.ticket);
                    table.sync(self.name, self.lock, self.clock);
                    return Err(Error::Deadlock(Box::new(cycle)));
                }
            }
        }
        let queue = wait.inbox.and_then(|_| table.queue(self.name));
        let ahead = queue.map_or(0, |queue| queue.ahead_of(inserted.ticket, MAX_AHEAD));
        self.effects.queued = Some(inserted.ticket);
        self.effects.parked = inboxes.expect(inbox, inserted.ticket, inserted.name);
        if let Some(former) = inserted.replaced.filter(|former| former.inbox() != inbox) {
            let answer = Answer::Rejected(Error::Replaced);
            self.effects.wake(inserted.ticket, former, answer);
        }
        self.effects.outcome = Outcome::Queued;
        self.effects.may_be_due = true;
        Ok(Acquired::Queued(ahead))
    }
}
