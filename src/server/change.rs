//! How a lock changes: open the key, let the step decide, store the outcome, carry out the effects.

use super::command::Failure;
use super::config;
use super::ctx::{self, Ctx, Flags, Text};
use super::datatype::Stored;
use super::key::{Key, Value};
use super::state;
use crate::lock::{Effects, Event, Lock, Moment, Replication};

/// The command that carries a change to replicas and the log.
pub const APPLY: &std::ffi::CStr = c"DLOCK.APPLY";

/// Where and when a lock changes.
pub struct Change<'a> {
    ctx: Ctx<'a>,
    name: Text<'a>,
    moment: Moment,
    /// This server decides; else it does what the primary or the log says.
    decides: bool,
}

impl<'a> Change<'a> {
    /// A change that a client asks for. Refused where this server does not decide about locks.
    pub fn asked(ctx: Ctx<'a>, name: Text<'a>, flags: Flags) -> Result<Self, Failure> {
        if !flags.decides() {
            return Err(Failure::ReadOnly);
        }
        Ok(Self {
            ctx,
            name,
            moment: moment(flags),
            decides: true,
        })
    }

    /// A change that the primary or the log tells of.
    pub fn told(ctx: Ctx<'a>, name: Text<'a>, flags: Flags) -> Result<Self, Failure> {
        if !flags.is_told() {
            return Err(Failure::Internal);
        }
        Ok(Self {
            ctx,
            name,
            moment: moment(flags),
            decides: false,
        })
    }

    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Runs `step` on the lock, stores what became of it, replicates, lets `reply` answer, and announces.
    pub fn run<R, E: Into<Failure>>(
        &self,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, E>,
        reply: impl FnOnce(R, &Effects),
    ) -> Result<(), Failure> {
        let mut effects = state::with(|state| std::mem::take(&mut state.spare));
        effects.clear();
        let outcome = self.store(&mut effects, step);
        if let Ok(answer) = outcome {
            self.replicate(&effects);
            reply(answer, &effects);
            self.announce(&effects);
            state::with(|state| state.spare = effects);
            return Ok(());
        }
        state::with(|state| state.spare = effects);
        outcome.map(drop)
    }

    fn store<R, E: Into<Failure>>(
        &self,
        effects: &mut Effects,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, E>,
    ) -> Result<R, Failure> {
        let mut key = Key::write(self.ctx, self.name);
        let (answer, is_free) = match key.value() {
            Value::OtherType => return Err(Failure::WrongType),
            Value::Nothing => {
                let mut stored = Stored::new(Lock::default());
                let answer = step(&mut stored, effects).map_err(Into::into)?;
                if !stored.lock.is_free() {
                    let stored = Box::new(stored);
                    self.keep_place(&stored);
                    key.set(stored);
                }
                return Ok(answer);
            }
            Value::Lock(stored) => {
                let answer = step(stored, effects).map_err(Into::into)?;
                if !stored.lock.is_free() {
                    self.keep_place(stored);
                }
                (answer, stored.lock.is_free())
            }
        };
        if is_free {
            key.delete();
        } else if effects.events.contains(&Event::Acquired) {
            key.persist();
        }
        Ok(answer)
    }

    fn keep_place(&self, stored: &Stored) {
        stored.keep_place(self.ctx.db(), self.name.bytes(), &self.moment);
    }

    fn replicate(&self, effects: &Effects) {
        match effects.replication {
            Replication::Nothing => return,
            Replication::Verbatim => self.ctx.replicate_verbatim(),
            Replication::Change => self.ctx.replicate(APPLY, self.name, effects.change()),
        }
        self.ctx.signal_modified(self.name);
    }

    fn announce(&self, effects: &Effects) {
        if self.decides {
            state::with(|state| {
                effects
                    .events
                    .iter()
                    .for_each(|event| state.counters.event(*event))
            });
        }
        for event in &effects.events {
            let event = match event {
                Event::Acquired => c"dlock.acquired",
                Event::Released => c"dlock.released",
                Event::Extended => c"dlock.extended",
                Event::Expired => c"dlock.expired",
            };
            self.ctx.notify(event, self.name);
        }
    }
}

/// The moment at which a command runs: the clock is read here, once.
pub fn moment(flags: Flags) -> Moment {
    let now = ctx::now();
    let allow_eviction = config::allow_eviction();
    state::with(|state| {
        state.settle_grace(flags, now);
        Moment {
            now,
            grace_end: state.grace.end(),
            evictable: state.evictable && !allow_eviction,
        }
    })
}

/// The moment as far as leases go: where nobody asks for a lock.
pub fn lease_moment() -> Moment {
    let grace_end = state::with(|state| state.grace.end());
    Moment {
        grace_end,
        ..Moment::at(ctx::now())
    }
}
