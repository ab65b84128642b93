//! A change of one lock: opens the key, reads the clock, runs transitions of the core, stores the lock, and carries out
//! the effects.

use std::ffi::CStr;

use dlock_core::cluster_slots::slot_of;
use dlock_core::expiry::ExpiryHandle;
use dlock_core::{
    Acquire, Acquired, Effects, Event, Extend, LockRef, Release, Replication, Transition, TransitionContext,
};

use crate::change::APPLY;
use crate::change::blocked_clients;
use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, Flags, Gil, RStr, Value, WriteKey, log};
use crate::state::config;
use crate::state::counters::add;
use crate::state::error::Error;
use crate::state::fences;
use crate::state::module_state::{STATE, State};
use crate::state::wait_timer;

/// A lock that is open for one change. Ends with [`Txn::commit`], also after a transition that was rejected: it may
/// have expired holders or granted waiters before.
#[must_use]
pub struct Txn<'c, 'a> {
    key: WriteKey<'c, 'a, LockValue>,
    name: RStr<'c>,
    /// The same name for the core. The server is asked for its bytes once.
    lock: LockRef<'c>,
    flags: Flags,
    origin: Origin,
    cx: TransitionContext,
    /// The lock, if nothing is under the key.
    new: Option<Box<LockValue>>,
    effects: Box<Effects>,
    /// The change must be encoded.
    should_propagate: bool,
}

/// Why a lock changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A client asks for it.
    Client,
    /// Something is due: a lease, a timeout, a grant from the queue.
    Timer,
    /// The primary or the AOF replicates it.
    Replication,
}

impl<'c, 'a> Txn<'c, 'a> {
    /// A change that a client asks for. Rejected where locks do not change by requests: on replicas, while loading.
    pub fn client(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags) -> Result<Self, Error> {
        if !flags.is_active_primary() {
            return Err(Error::ReadOnly);
        }
        Self::open(ctx, name, flags, Origin::Client)
    }

    /// A change that is due. Rejected as one of a client.
    pub fn timer(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags) -> Result<Self, Error> {
        if !flags.is_active_primary() {
            return Err(Error::ReadOnly);
        }
        Self::open(ctx, name, flags, Origin::Timer)
    }

    /// A change from the primary or the AOF. Rejected if a client sends it.
    pub fn replicated(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags) -> Result<Self, Error> {
        if !flags.must_obey() {
            return Err(Error::Internal);
        }
        Self::open(ctx, name, flags, Origin::Replication)
    }

    fn open(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags, origin: Origin) -> Result<Self, Error> {
        let lock = LockRef::new(ctx.db(), name.bytes());
        let state = ctx.state();
        let cx = state.transition_context(flags);
        // Any change may grant the lock to waiters. There may have been no tick since the grace period ended, and
        // another node may have granted locks in the cluster slot.
        if origin != Origin::Replication {
            fences::advance_if_due(state, cx.now);
            if flags.is_cluster() {
                fences::claim_slot(state, slot_of(lock.key), cx.now);
            }
        }
        // What the module does by itself is no command that could be replicated verbatim.
        let should_propagate = origin != Origin::Client || state.replication_targets.should_propagate(flags);
        let mut key = WriteKey::<LockValue>::open(ctx, name);
        let new = match key.value_and(&STATE) {
            (Value::OtherType, _) => return Err(Error::WrongType),
            (Value::Nothing, _) => Some(Box::default()),
            (Value::Ours(value), state) => {
                value.track(state, lock);
                None
            }
        };
        let mut effects = key.gil().state().effects_scratch.take().unwrap_or_default();
        effects.clear();
        if !should_propagate {
            effects.skip_encoding();
        }
        Ok(Self {
            key,
            name,
            lock,
            flags,
            origin,
            cx,
            new,
            effects,
            should_propagate,
        })
    }

    /// For what does not change any key.
    pub fn ctx(&self) -> &Ctx<'a> {
        self.key.ctx()
    }

    /// For what does not call the server.
    pub fn gil(&mut self) -> &mut Gil<'a> {
        self.key.gil()
    }

    /// Grants, or queues the request if it may block. A search for deadlocks is abandoned if the queues are not up to date.
    pub fn acquire(&mut self, request: &Acquire<'_>, is_up_to_date: bool) -> Result<Acquired, Error> {
        self.allow_min_fence(request.min_fence);
        let mut policy = config::wait_policy();
        let abandons_search = policy.detect_deadlocks && !is_up_to_date;
        policy.detect_deadlocks &= is_up_to_date;
        let acquired = self.transition().acquire(request, policy)?;
        self.effects.is_search_abandoned |= abandons_search && matches!(acquired, Acquired::Queued(_));
        let is_new = self.effects.events.contains(&Event::Acquired);
        let is_repeated = self.effects.replication == Replication::Nothing;
        let counters = &mut self.gil().state().counters;
        match acquired {
            Acquired::Granted(_) if !is_new && !is_repeated => add(&mut counters.reentered),
            Acquired::NotGranted => add(&mut counters.not_granted),
            Acquired::Granted(_) | Acquired::Queued(_) => {}
        }
        Ok(acquired)
    }

    /// The holds that remain.
    pub fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let released = self.transition().release(request);
        if let Err(error) = &released {
            self.gil().state().counters.release_rejected(error);
        }
        Ok(released?)
    }

    /// What remains of the lease, in milliseconds.
    pub fn extend(&mut self, request: &Extend<'_>) -> Result<u64, Error> {
        self.allow_min_fence(request.min_fence);
        let extended = self.transition().extend(request)?;
        if self.effects.is_fence_raised {
            add(&mut self.gil().state().counters.fences_raised);
        }
        Ok(extended)
    }

    /// Times out waiters, expires holders, and grants the lock to the next waiters.
    pub fn on_timer(&mut self) {
        self.transition().on_timer();
    }

    /// Whether there was such a grant.
    pub fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        self.transition().rollback_grant(request)
    }

    /// Removes holders whose leases have expired. The queue has its own schedule.
    pub fn expire_holders(&mut self, due: ExpiryHandle) {
        self.parts().value.clear_expiry_if(due);
        self.transition().expire_holders();
        let Parts { value, state, cx, .. } = self.parts();
        state.longest_hold.observe(&value.lock, cx);
    }

    /// A change that was replicated.
    pub fn apply(&mut self, change: &[u8]) -> Result<(), Error> {
        self.transition().apply(change)?;
        Ok(())
    }

    /// A RELEASE that was propagated verbatim.
    pub fn apply_release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        Ok(self.transition().apply_release(request)?)
    }

    /// Up to which fence a request may ask for one.
    fn allow_min_fence(&mut self, min_fence: Option<u64>) {
        if min_fence.is_some() {
            self.cx.max_min_fence = fences::max_min_fence(self.gil().state());
        }
    }

    fn transition(&mut self) -> Transition<'_> {
        let name = self.lock;
        let Parts {
            value,
            state,
            cx,
            effects,
        } = self.parts();
        state.engine.begin(name, &mut value.lock, cx, effects)
    }

    fn parts(&mut self) -> Parts<'_> {
        let (value, state) = self.key.value_and(&STATE);
        Parts {
            value: match value {
                Value::Ours(value) => value,
                Value::Nothing | Value::OtherType => self.new.get_or_insert_default(),
            },
            state,
            cx: &self.cx,
            effects: &mut self.effects,
        }
    }

    /// Stores or deletes the lock, then carries out the effects: replicate, count, wake, notify, arm. Returns the outcome
    /// of the transition, unless the lock could not be stored.
    pub fn commit<R>(mut self, outcome: Result<R, Error>) -> Result<R, Error> {
        let is_stored = self.store();
        let Self {
            key,
            name,
            lock,
            flags,
            origin,
            mut effects,
            should_propagate,
            ..
        } = self;
        let ctx = key.close();
        let outcome = if is_stored {
            replicate(ctx, name, &effects, origin, should_propagate);
            if origin != Origin::Replication {
                count(ctx.state(), lock, &effects);
                if flags.is_cluster() {
                    fences::announce(ctx, false);
                }
            }
            blocked_clients::wake(ctx, &mut effects);
            notify_keyspace(ctx, name, &effects);
            outcome
        } else {
            blocked_clients::fail(ctx, &mut effects, &Error::NotStored.to_string());
            outcome.and(Err(Error::NotStored))
        };
        let state = ctx.state();
        state.effects_scratch = Some(effects);
        if !state.engine.wait_table.is_empty() {
            wait_timer::arm(ctx);
        }
        outcome
    }

    /// False if the server did not take the lock.
    fn store(&mut self) -> bool {
        let LockRef { db, key } = self.lock;
        let Parts { value, state, cx, .. } = self.parts();
        if value.lock.is_free() {
            value.cancel_expiry(state, db, key);
            if self.new.is_none() {
                self.key.delete();
            }
            return true;
        }
        value.schedule_expiry(state, db, key, cx);
        if let Some(new) = self.new.take() {
            let is_stored = self.key.set(new);
            debug_assert!(is_stored, "an empty key that is open for writing takes a value");
            if !is_stored {
                log::warning("internal error: the server did not store a lock, which was not granted");
            }
            return is_stored;
        }
        if self.effects.events.contains(&Event::Acquired) {
            self.key.persist();
        }
        true
    }
}

/// What a transition works on.
struct Parts<'t> {
    value: &'t mut LockValue,
    state: &'t mut State,
    cx: &'t TransitionContext,
    effects: &'t mut Effects,
}

fn replicate(ctx: &mut Ctx<'_>, name: RStr<'_>, effects: &Effects, origin: Origin, should_propagate: bool) {
    match effects.replication {
        Replication::Nothing => return,
        Replication::Verbatim if origin != Origin::Timer => ctx.replicate_verbatim(),
        // The server counts the change for its next snapshot, and discards the command.
        Replication::Change if !should_propagate => ctx.replicate_verbatim(),
        Replication::Verbatim | Replication::Change => ctx.replicate(APPLY, name, effects.change()),
    }
    ctx.state().footprint.touch();
    if effects.changes_holders() {
        ctx.signal_modified(name);
    }
}

fn count(state: &mut State, lock: LockRef<'_>, effects: &Effects) {
    // A lock is contended if it has waiters, or had some that this transition answered.
    let is_contended = effects.events.contains(&Event::Expired)
        && (!effects.wakes.is_empty() || state.engine.wait_table.queue(lock).is_some());
    state.counters.transition(effects, is_contended);
}

fn notify_keyspace(ctx: &mut Ctx<'_>, name: RStr<'_>, effects: &Effects) {
    for event in &effects.events {
        let event: &CStr = match event {
            Event::Acquired => c"dlock.acquired",
            Event::Released => c"dlock.released",
            Event::Extended => c"dlock.extended",
            Event::Expired => c"dlock.expired",
        };
        ctx.notify(event, name);
    }
}
