//! How a lock changes: open the key, let the step decide, store the outcome, carry out the effects.

use crate::commands::entry::Failure;
use crate::module::config;
use crate::module::data_type::Stored;
use crate::module::state::{self, State};
use crate::redis::ctx::{self, Ctx, Flags, Text};
use crate::redis::key::{Key, Value};
use crate::waiting::due;
use dlock_core::{Effects, Event, Lock, Replication, TransitionContext};

/// The command that carries a change to replicas and the log.
pub const APPLY: &std::ffi::CStr = c"DLOCK.APPLY";

/// Where and when a lock changes.
pub struct Change<'a> {
    ctx: Ctx<'a>,
    name: Text<'a>,
    flags: Flags,
    moment: TransitionContext,
    cause: Cause,
}

/// Why a lock changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A client asks for it.
    Client,
    /// The module does it by itself.
    Module,
    /// The primary or the log tells of it.
    Told,
}

impl<'a> Change<'a> {
    /// A change that a client asks for. Refused where this server does not decide about locks.
    pub fn asked(ctx: Ctx<'a>, name: Text<'a>, flags: Flags) -> Result<Self, Failure> {
        Self::decided(ctx, name, flags, Cause::Client)
    }

    /// A change that the module makes by itself, from a timer or the cron.
    pub fn of_our_own(ctx: Ctx<'a>, name: Text<'a>, flags: Flags) -> Result<Self, Failure> {
        Self::decided(ctx, name, flags, Cause::Module)
    }

    /// A change that the primary or the log tells of.
    pub fn told(ctx: Ctx<'a>, name: Text<'a>, flags: Flags) -> Result<Self, Failure> {
        if !flags.is_told() {
            return Err(Failure::Internal);
        }
        Ok(Self {
            ctx,
            name,
            flags,
            moment: moment(flags),
            cause: Cause::Told,
        })
    }

    fn decided(ctx: Ctx<'a>, name: Text<'a>, flags: Flags, cause: Cause) -> Result<Self, Failure> {
        if !flags.decides() {
            return Err(Failure::ReadOnly);
        }
        Ok(Self {
            ctx,
            name,
            flags,
            moment: moment(flags),
            cause,
        })
    }

    pub fn moment(&self) -> &TransitionContext {
        &self.moment
    }

    /// Runs `step` on the lock, stores what became of it, and carries out the effects; `reply` answers.
    pub fn run<R>(
        &self,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, Failure>,
        reply: impl FnOnce(R, &Effects),
    ) {
        self.perform_and(step, |outcome, effects| match outcome {
            Ok(answer) => reply(answer, effects),
            Err(failure) => failure.reply(self.ctx),
        });
    }

    /// As [`Change::run`], when nobody waits for a reply.
    pub fn perform<R>(
        &self,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.perform_and(step, |outcome, _| outcome)
    }

    /// The effects, in their order: replicate, reply, wake, announce. Also after a refusal, which may come
    /// after others were served.
    fn perform_and<R, A>(
        &self,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, Failure>,
        reply: impl FnOnce(Result<R, Failure>, &Effects) -> A,
    ) -> A {
        let (spare, heard) = state::with(|state| (state.spare.take(), self.is_heard(state)));
        let mut effects = spare.unwrap_or_default();
        effects.clear();
        if !heard {
            effects.skip_encoding();
        }
        let outcome = self.store(&mut effects, step);
        self.replicate(&effects, heard);
        if self.cause != Cause::Told {
            self.count(&effects);
        }
        let answer = reply(outcome, &effects);
        due::wake(&mut effects);
        self.announce(&effects);
        if state::with(|state| {
            state.spare = Some(effects);
            !state.waiting.is_empty()
        }) {
            due::arm();
        }
        answer
    }

    fn store<R>(
        &self,
        effects: &mut Effects,
        step: impl FnOnce(&mut Stored, &mut Effects) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut key = Key::write(self.ctx, self.name);
        let (answer, is_free) = match key.value() {
            Value::OtherType => return Err(Failure::WrongType),
            Value::Nothing => {
                let mut stored = Stored::new(Lock::default());
                let answer = step(&mut stored, effects);
                if !stored.lock.is_free() {
                    let stored = Box::new(stored);
                    self.keep_place(&stored);
                    key.set(stored);
                }
                return answer;
            }
            Value::Lock(stored) => {
                let answer = step(stored, effects);
                let is_free = stored.lock.is_free();
                if is_free {
                    stored.give_up_place(self.ctx.db(), self.name.bytes());
                } else {
                    self.keep_place(stored);
                }
                (answer, is_free)
            }
        };
        if is_free {
            key.delete();
        } else if effects.events.contains(&Event::Acquired) {
            key.persist();
        }
        answer
    }

    fn count(&self, effects: &Effects) {
        state::with(|state| {
            // Who waited does so still, or has an answer.
            let is_awaited = || {
                let name = state.waiting.name(self.ctx.db(), self.name.bytes());
                !effects.wakes.is_empty() || name.is_some()
            };
            let awaited = effects.events.contains(&Event::Expired) && is_awaited();
            state.counters.step(effects, awaited);
        });
    }

    fn keep_place(&self, stored: &Stored) {
        stored.keep_place(self.ctx.db(), self.name.bytes(), &self.moment);
    }

    /// Whether words are needed. What the module does by itself is no command that could stand for them.
    fn is_heard(&self, state: &State) -> bool {
        self.cause != Cause::Client || state.audience.listens(self.flags)
    }

    fn replicate(&self, effects: &Effects, heard: bool) {
        match effects.replication {
            Replication::Nothing => return,
            Replication::Verbatim if self.cause != Cause::Module => self.ctx.replicate_verbatim(),
            // The server counts the change for its next snapshot, and sends it to nobody.
            Replication::Change if !heard => self.ctx.replicate_verbatim(),
            Replication::Verbatim | Replication::Change => {
                self.ctx.replicate(APPLY, self.name, effects.change())
            }
        }
        self.ctx.signal_modified(self.name);
    }

    fn announce(&self, effects: &Effects) {
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
pub fn moment(flags: Flags) -> TransitionContext {
    let now = ctx::now();
    let allow_eviction = config::allow_eviction();
    state::with(|state| {
        state.settle_grace(flags, now);
        TransitionContext {
            now,
            grace_begin: state.grace.begin(),
            grace_end: state.grace.end(),
            evictable: state.evictable && !allow_eviction,
        }
    })
}

/// The moment as far as leases go: where nobody asks for a lock.
pub fn lease_moment() -> TransitionContext {
    state::with(|state| TransitionContext {
        grace_begin: state.grace.begin(),
        grace_end: state.grace.end(),
        ..TransitionContext::at(ctx::now())
    })
}
