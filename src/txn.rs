//! A change of one lock: opens the key, reads the clock, runs transitions of the core, stores the lock, and carries out
//! the effects.

use std::ffi::{CStr, c_int};

use dlock_core::cluster_slots;
use dlock_core::expiry::ExpiryHandle;
use dlock_core::{
    Acquire, Acquired, Effects, Event, Extend, Lock, LockRef, Release, Replication, Transition,
    TransitionContext,
};

use crate::module::config;
use crate::module::data_type::LockValue;
use crate::module::fences;
use crate::module::state::{STATE, State};
use crate::module::stats::add;
use crate::redis::{Ctx, Flags, Gil, RStr, Value, WriteKey, log};
use crate::replication::APPLY;
use crate::reply::Error;
use crate::waiting::blocked_clients;
use crate::waiting::timer;

/// A lock that is open for one change. Ends with [`Txn::commit`], also after a transition that was rejected: it may
/// have expired holders or granted waiters before.
#[must_use]
pub struct Txn<'c, 'a> {
    key: WriteKey<'c, 'a, LockValue>,
    name: RStr<'c>,
    db: c_int,
    flags: Flags,
    origin: Origin,
    cx: TransitionContext,
    /// The lock, as long as nothing is under the key.
    new: LockValue,
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
    /// The primary or the log says so.
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

    /// A change that comes from the primary or the log. Rejected if a client sends it.
    pub fn replicated(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags) -> Result<Self, Error> {
        if !flags.must_obey() {
            return Err(Error::Internal);
        }
        Self::open(ctx, name, flags, Origin::Replication)
    }

    fn open(ctx: &'c mut Ctx<'a>, name: RStr<'c>, flags: Flags, origin: Origin) -> Result<Self, Error> {
        let db = ctx.db();
        let state = ctx.state();
        let cx = state.transition_context(flags);
        // What the module does by itself is no command that could be replicated verbatim.
        let should_propagate = origin != Origin::Client || state.replication_targets.should_propagate(flags);
        let mut key = WriteKey::open(ctx, name);
        if let Value::OtherType = key.value() {
            return Err(Error::WrongType);
        }
        let mut effects = key.gil().state().effects_scratch.take().unwrap_or_default();
        effects.clear();
        if !should_propagate {
            effects.skip_encoding();
        }
        Ok(Self {
            key,
            name,
            db,
            flags,
            origin,
            cx,
            new: LockValue::new(Lock::default()),
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

    /// Grants, or queues the request if it may block.
    pub fn acquire(&mut self, request: &Acquire<'_>) -> Result<Acquired, Error> {
        self.advance_fences();
        let acquired = self.begin().acquire(request, config::wait_policy())?;
        match acquired {
            Acquired::Granted(_) => self.count_reentry(),
            Acquired::NotGranted => add(&mut self.gil().state().counters.not_granted),
            Acquired::Queued(_) => {}
        }
        Ok(acquired)
    }

    fn count_reentry(&mut self) {
        let is_new = self.effects.events.contains(&Event::Acquired);
        let is_repeated = self.effects.replication == Replication::Nothing;
        if !is_new && !is_repeated {
            add(&mut self.gil().state().counters.reentered);
        }
    }

    /// The holds that remain.
    pub fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let released = self.begin().release(request);
        if let Err(error) = &released {
            self.gil().state().counters.release_rejected(error);
        }
        Ok(released?)
    }

    /// What remains of the lease, in milliseconds.
    pub fn extend(&mut self, request: &Extend<'_>) -> Result<u64, Error> {
        Ok(self.begin().extend(request)?)
    }

    /// Times out waiters, expires holders, and grants the lock to the next waiters.
    pub fn on_timer(&mut self) {
        self.begin().on_timer();
    }

    /// Whether there was such a grant.
    pub fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        self.begin().rollback_grant(request)
    }

    /// Removes holders whose leases have expired. The queue has its own schedule.
    pub fn expire_holders(&mut self, due: ExpiryHandle) {
        if let (Value::Ours(value), _) = self.key.value_and(&STATE) {
            value.clear_expiry_if(due);
        }
        self.begin().expire_holders();
    }

    /// A change that was replicated.
    pub fn apply(&mut self, change: &[u8]) -> Result<(), Error> {
        self.begin().apply(change)?;
        Ok(())
    }

    /// A RELEASE that was replicated as it came.
    pub fn apply_release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        Ok(self.begin().apply_release(request)?)
    }

    /// A cluster slot may have come here, or nothing may have ticked since a start or a promotion.
    fn advance_fences(&mut self) {
        let slot = self
            .flags
            .is_cluster()
            .then(|| cluster_slots::slot_of(self.name.bytes()));
        let state = self.gil().state();
        fences::advance_if_pending(state);
        if let Some(slot) = slot {
            fences::advance_for_slot(state, slot);
        }
    }

    fn begin(&mut self) -> Transition<'_> {
        let name = LockRef::new(self.db, self.name.bytes());
        let (value, state) = match self.key.value_and(&STATE) {
            (Value::Ours(value), state) => (value, state),
            (Value::Nothing | Value::OtherType, state) => (&mut self.new, state),
        };
        state
            .engine
            .begin(name, &mut value.lock, &self.cx, &mut self.effects)
    }

    /// Stores or deletes the lock, then carries out the effects: replicate, count, wake, notify, arm. Returns the outcome
    /// of the transition, unless the lock could not be stored.
    pub fn commit<R>(mut self, outcome: Result<R, Error>) -> Result<R, Error> {
        let is_stored = self.store();
        let Self {
            key,
            name,
            db,
            origin,
            mut effects,
            should_propagate,
            ..
        } = self;
        let ctx = key.close();
        let outcome = if is_stored {
            replicate(ctx, name, &effects, origin, should_propagate);
            if origin != Origin::Replication {
                count(ctx.state(), db, name, &effects);
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
            timer::arm(ctx);
        }
        outcome
    }

    /// False if the server did not take the lock.
    fn store(&mut self) -> bool {
        let (db, name) = (self.db, self.name.bytes());
        let has_new_holder = self.effects.events.contains(&Event::Acquired);
        match self.key.value_and(&STATE) {
            (Value::Ours(value), state) if value.lock.is_free() => {
                value.cancel_expiry(state, db, name);
                self.key.delete();
            }
            (Value::Ours(value), state) => {
                value.schedule_expiry(state, db, name, &self.cx);
                if has_new_holder {
                    self.key.persist();
                }
            }
            (Value::Nothing, state) if !self.new.lock.is_free() => {
                self.new.schedule_expiry(state, db, name, &self.cx);
                let new = std::mem::replace(&mut self.new, LockValue::new(Lock::default()));
                let is_stored = self.key.set(Box::new(new));
                debug_assert!(is_stored, "an empty key that is open for writing takes a value");
                if !is_stored {
                    log::warning("internal error: the server did not store a lock, which was not granted");
                }
                return is_stored;
            }
            (Value::Nothing | Value::OtherType, _) => {}
        }
        true
    }
}

fn replicate(ctx: &mut Ctx<'_>, name: RStr<'_>, effects: &Effects, origin: Origin, should_propagate: bool) {
    match effects.replication {
        Replication::Nothing => return,
        Replication::Verbatim if origin != Origin::Timer => ctx.replicate_verbatim(),
        // The server counts the change for its next snapshot, and sends it to nobody.
        Replication::Change if !should_propagate => ctx.replicate_verbatim(),
        Replication::Verbatim | Replication::Change => ctx.replicate(APPLY, name, effects.change()),
    }
    ctx.signal_modified(name);
}

fn count(state: &mut State, db: c_int, name: RStr<'_>, effects: &Effects) {
    // A lock is contended if it has waiters, or had some that this transition answered.
    let is_contended = effects.events.contains(&Event::Expired)
        && (!effects.wakes.is_empty()
            || state
                .engine
                .wait_table
                .queue(LockRef::new(db, name.bytes()))
                .is_some());
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
