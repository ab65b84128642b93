//! A change of one lock: opens the key, runs one transition of the core, stores the lock, and has its effects carried
//! out.

use super::error::Error;
use super::host::{Flags, Host, OpenKey, Stored};
use super::lock_value::{LockValue, check_plausible};
use super::perform::{Origin, fail, perform};
use super::state::EngineState;
use crate::cluster::slots::slot_of;
use crate::effects::Effects;
use crate::expiry::ExpiryHandle;
use crate::names::LockNameRef;
use crate::time::{Environment, Inputs, Instant};
use crate::transition::{Transition, maxima_of_change};
use crate::wire::Event;

/// Why a lock changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A client asks for it.
    Client,
    /// A timeout or a grant from the queue is due, or a grant is to be rolled back.
    Timer,
    /// A lease has expired: the expiry index has taken this entry out.
    Expiry(ExpiryHandle),
}

/// Runs a transition on the lock called `name`. Rejected where locks do not change by requests: on replicas, while
/// loading. The effects are carried out also after a transition that was rejected: it may have expired holders or
/// granted waiters before.
pub fn decide<H: Host, R>(
    host: &mut H,
    name: H::Name<'_>,
    flags: Flags,
    cause: Cause,
    transition: impl FnOnce(&mut Transition<'_>) -> Result<R, crate::wire::Error>,
) -> Result<R, Error> {
    if !flags.is_active_primary() {
        return Err(Error::ReadOnly);
    }
    let lock = LockNameRef::new(host.db(), H::bytes(name));
    let slot = flags.is_cluster.then(|| slot_of(lock.key));
    // What the module does by itself is no command that could be replicated in place of the change.
    let targets = &host.state().replication_targets;
    let has_targets = !targets.has_no_replicas || targets.exports > 0 || flags.has_aof;
    let must_encode = cause != Cause::Client || has_targets;
    // The clock is read here, once for each decision.
    let (now, environment) = (host.now(), host.environment());
    let inputs = Inputs {
        now,
        role: flags.role(),
        slot,
        must_encode,
        environment: &environment,
    };
    let mut change = LockChange::open(host, name, lock, now)?;
    let outcome = change.transit(&inputs, cause, transition);
    change.commit(Origin::Decided, outcome.map_err(Error::Rejected))
}

/// Applies a change of the lock called `name` from the primary or the AOF. From a node that migrates slots to this one
/// too, but no more than RESTORE accepts: any client of an administrator can pose as one. Rejected from other clients.
pub fn apply<H: Host>(host: &mut H, name: H::Name<'_>, flags: Flags, encoded: &[u8]) -> Result<(), Error> {
    if !flags.must_obey {
        if !flags.is_slot_import {
            return Err(Error::Internal);
        }
        let (fence, lease_ms) = maxima_of_change(encoded)?;
        let wall_clock = host.environment().wall_clock();
        check_plausible(host.state(), wall_clock, fence, lease_ms).map_err(Error::Implausible)?;
    }
    let lock = LockNameRef::new(host.db(), H::bytes(name));
    let now = host.now();
    let mut change = LockChange::open(host, name, lock, now)?;
    let (value, state, effects) = change.parts();
    let outcome = state.server.apply(now, &mut value.lock, encoded, effects);
    state.server.wait_table.recheck_holders(lock);
    change.commit(Origin::Received, outcome.map_err(Error::Rejected))
}

/// A lock that is open for one change.
struct LockChange<'c, 'n, H: Host + 'c> {
    key: H::Key<'c>,
    name: H::Name<'n>,
    /// The same name for the core. The server is asked for its bytes once.
    lock: LockNameRef<'n>,
    /// The lock, if nothing is under the key.
    new: Option<Box<LockValue>>,
    effects: Box<Effects>,
}

impl<'c, 'n, H: Host + 'c> LockChange<'c, 'n, H> {
    fn open(host: &'c mut H, name: H::Name<'n>, lock: LockNameRef<'n>, now: Instant) -> Result<Self, Error> {
        let mut key = host.open(name).ok_or(Error::Saving)?;
        let (stored, state) = key.value();
        let new = match stored {
            Stored::OtherType => return Err(Error::WrongType),
            Stored::Nothing => Some(Box::default()),
            Stored::Lock(value) => {
                value.adopt(state, lock, now);
                None
            }
        };
        let effects = state.effects_scratch.take().unwrap_or_default();
        Ok(Self {
            key,
            name,
            lock,
            new,
            effects,
        })
    }

    fn transit<R>(
        &mut self,
        inputs: &Inputs<'_>,
        cause: Cause,
        transition: impl FnOnce(&mut Transition<'_>) -> R,
    ) -> R {
        let name = self.lock;
        let (value, state, effects) = self.parts();
        if let Cause::Expiry(due) = cause {
            value.clear_expiry_if(due);
        }
        let mut begun = state.server.begin(inputs, name, &mut value.lock, effects);
        let outcome = transition(&mut begun);
        if let Cause::Expiry(_) = cause {
            state.longest_hold.sample(&value.lock, effects.clock);
        }
        outcome
    }

    /// What a transition works on.
    fn parts(&mut self) -> (&mut LockValue, &mut EngineState, &mut Effects) {
        let (stored, state) = self.key.value();
        let value = match stored {
            Stored::Lock(value) => value,
            Stored::Nothing | Stored::OtherType => self.new.get_or_insert_default(),
        };
        (value, state, &mut self.effects)
    }

    /// Stores or deletes the lock, then carries out the effects. Returns the outcome of the transition, unless the lock
    /// could not be stored.
    fn commit<R>(mut self, origin: Origin, outcome: Result<R, Error>) -> Result<R, Error> {
        let is_stored = self.store();
        let (host, mut effects) = (self.key.close(), self.effects);
        let outcome = if is_stored {
            perform(host, (self.name, self.lock), origin, &mut effects);
            outcome
        } else {
            fail(host, self.lock, &mut effects);
            outcome.and(Err(Error::NotStored))
        };
        host.state().effects_scratch = effects.are_small().then_some(effects);
        outcome
    }

    /// False if the server did not take the lock.
    fn store(&mut self) -> bool {
        let (name, clock) = (self.lock, self.effects.clock);
        let (value, state, _) = self.parts();
        if value.lock.is_free() {
            value.cancel_expiry(state, name);
            if self.new.is_none() {
                self.key.delete();
            }
            return true;
        }
        value.schedule_expiry(state, name, clock);
        if let Some(new) = self.new.take() {
            return self.key.set(new);
        }
        if self.effects.events.contains(&Event::Acquired) {
            self.key.persist();
        }
        true
    }
}
