//! A server with one lock: the state that the module keeps, and how it drives the core.

use std::hash::{Hash, Hasher};

use super::setting::{Breach, LONGEST_LEASE_TICKS, Setting, TICK_MS};
use dlock_core::testing::Outside;
use dlock_core::{
    Acquire, Acquired, Checkpoint, Effects, Error, Extend, Fences, Grace, GrantRef, Holder, Inputs, Instant,
    LeaseClock, Lock, LockNameRef, Policy, Release, ServerState, Transition, WallClock, decode_lock,
    encode_lock,
};

const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };

const LONG_AGO_UNIX_MS: u64 = 1_710_000_000_000;

/// When something happens on a server.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now: Instant,
    pub wall_clock: WallClock,
}

/// What a transition takes for the grace period instead of the real one, when a rule is left out.
type OtherGrace = fn(&Grace, Instant) -> Grace;

#[derive(Clone)]
pub struct Server {
    pub lock: Lock,
    pub state: ServerState,
    /// The random bits of its fences.
    pub random: u64,
    /// The fences of the holders that were live when its grace period began.
    pub live_at_grace_begin: Vec<u64>,
}

/// An RDB file: stored, or sent to a replica in a full resync.
#[derive(Clone, Default, Hash)]
pub struct Saved {
    lock: Vec<u8>,
    checkpoint: Checkpoint,
}

/// A command in the replication stream.
pub enum Message<'a> {
    Change(&'a [u8]),
    Checkpoint(Checkpoint),
}

impl Server {
    pub fn starting(setting: &Setting) -> Self {
        let mut server = Self {
            lock: Lock::default(),
            state: ServerState::default(),
            random: 0,
            live_at_grace_begin: Vec::new(),
        };
        server.set_policy(setting);
        // Nothing depends on the longest lease known, since grace periods have fixed lengths. If it is always the same,
        // there are fewer states.
        let longest_ms = LONGEST_LEASE_TICKS * TICK_MS;
        server.state.grace.observe_lease(longest_ms);
        server
    }

    pub fn set_policy(&mut self, setting: &Setting) {
        self.state.set_policy(Policy {
            graces: setting.graces(),
            ..Policy::default()
        });
    }

    /// Loads an RDB file. Leases start again now.
    pub fn load(saved: &Saved, now: Instant, setting: &Setting) -> Self {
        let mut server = Self::starting(setting);
        if !saved.lock.is_empty() {
            server.lock = decode_lock(&saved.lock, now).expect("a lock that was stored");
        }
        server.state.observe_lock(&server.lock, now);
        let checkpoint = received(saved.checkpoint, setting);
        server.state.restore_checkpoint(checkpoint, now);
        server
    }

    pub fn save(&self, now: Instant) -> Saved {
        let encoded = || encode_lock(&self.lock, self.state.clock(now));
        Saved {
            lock: if self.lock.is_free() {
                Vec::new()
            } else {
                encoded()
            },
            checkpoint: self.state.checkpoint(now),
        }
    }

    /// The first tick of a server that has loaded its data.
    pub fn start(&mut self, at: Moment, setting: &Setting) {
        if setting.breach == Some(Breach::FencesAdvancedBeforeGrace) {
            let grace = std::mem::replace(&mut self.state.grace, no_grace());
            self.tick(at);
            self.state.grace = grace;
        }
        self.tick(at);
    }

    pub fn promote(&mut self, setting: &Setting, random: u64) {
        self.random = random;
        self.state.promote();
        if setting.breach == Some(Breach::NoFenceGap) {
            // As if it had been advanced long ago.
            let mut fences = Fences::starting();
            fences.advance(WallClock::from_unix_ms(LONG_AGO_UNIX_MS), 0);
            fences.observe(self.state.fences.known());
            self.state.fences = fences;
        }
    }

    pub fn tick(&mut self, at: Moment) {
        self.run(at, |state, _, inputs| state.tick(inputs));
    }

    pub fn in_grace(&self, now: Instant) -> bool {
        self.state.grace.end() > now
    }

    pub fn next_fence(&mut self) -> u64 {
        self.state.fences.next_fence(NAME, None).expect("a fence")
    }

    pub fn acquire(
        &mut self,
        request: &Acquire<'_>,
        at: Moment,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<Acquired, Error> {
        let mut holders = self.lock.holders().iter();
        let is_holder = holders.any(|holder| holder.owner() == request.owner);
        let other_grace = match setting.breach {
            Some(Breach::ReentryInGrace) if is_holder => Some(without_grace as OtherGrace),
            _ => any_other_grace(setting),
        };
        self.transition(at, other_grace, effects, |transition| {
            transition.acquire(request, b"")
        })
    }

    pub fn extend(
        &mut self,
        request: &Extend<'_>,
        at: Moment,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        let mut request = *request;
        let other_grace = match setting.breach {
            Some(Breach::LeasesNotExtended) => Some(without_grace as OtherGrace),
            // The core must see neither the grace period nor the lease that it extends.
            Some(Breach::ExtendWithoutFence) => {
                request.grant = GrantRef::Current;
                Some(without_grace as OtherGrace)
            }
            _ => any_other_grace(setting),
        };
        self.transition(at, other_grace, effects, |transition| transition.extend(&request))
    }

    pub fn release(
        &mut self,
        request: &Release<'_>,
        at: Moment,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        self.transition(at, any_other_grace(setting), effects, |transition| {
            transition.release(request)
        })
    }

    /// Removes expired holders.
    pub fn sweep(&mut self, at: Moment, setting: &Setting, effects: &mut Effects) {
        self.transition(at, any_other_grace(setting), effects, |transition| {
            transition.expire_holders();
        });
    }

    /// The checkpoint that the cron replicates, if one is due.
    pub fn due_checkpoint(&mut self, now: Instant) -> Option<Message<'static>> {
        self.state.due_checkpoint(true, now).map(Message::Checkpoint)
    }

    /// On a replica: applies a command of the primary.
    pub fn apply(&mut self, message: &Message<'_>, now: Instant, setting: &Setting) {
        match message {
            Message::Change(change) => {
                let effects = &mut Effects::default();
                let applied = self.state.apply(now, &mut self.lock, change, effects);
                applied.expect("a change that the primary encoded");
            }
            Message::Checkpoint(checkpoint) => {
                self.state.apply_checkpoint(received(*checkpoint, setting), now);
            }
        }
    }

    /// A transition, if need be with another grace period than the real one, which starts first if it is pending.
    fn transition<R>(
        &mut self,
        at: Moment,
        other_grace: Option<OtherGrace>,
        effects: &mut Effects,
        decide: impl FnOnce(&mut Transition<'_>) -> R,
    ) -> R {
        self.run(at, |state, lock, inputs| {
            let Some(other_grace) = other_grace else {
                return decide(&mut state.begin(inputs, NAME, lock, effects));
            };
            state.tick(inputs);
            let other = other_grace(&state.grace, at.now);
            let grace = std::mem::replace(&mut state.grace, other);
            let result = decide(&mut state.begin(inputs, NAME, lock, effects));
            state.grace = grace;
            result
        })
    }

    /// Runs the core, and takes note of the holders that are live when it starts a grace period.
    fn run<R>(&mut self, at: Moment, run: impl FnOnce(&mut ServerState, &mut Lock, &Inputs<'_>) -> R) -> R {
        let outside = Outside {
            wall_clock: at.wall_clock,
            random: self.random,
        };
        let inputs = outside.inputs(at.now);
        let may_start = self.state.grace.is_pending();
        let live = self.lock.live_holders(self.state.clock(at.now));
        let live: Vec<u64> = live.map(Holder::fence).filter(|_| may_start).collect();
        let result = run(&mut self.state, &mut self.lock, &inputs);
        if may_start && self.in_grace(at.now) {
            self.live_at_grace_begin = live;
        }
        result
    }
}

/// What every transition takes for the grace period.
fn any_other_grace(setting: &Setting) -> Option<OtherGrace> {
    (setting.breach == Some(Breach::ExpiredLeasesExtended)).then_some(from_distant_past as OtherGrace)
}

/// None, and none is pending.
fn no_grace() -> Grace {
    let mut grace = Grace::starting();
    grace.demoted();
    grace
}

fn without_grace(_: &Grace, _: Instant) -> Grace {
    no_grace()
}

/// The same, but every lease was live when it began.
fn from_distant_past(grace: &Grace, now: Instant) -> Grace {
    let mut other = no_grace();
    other.observe(grace.left_ms(now), now);
    other
}

/// The part of a checkpoint that a server uses.
fn received(checkpoint: Checkpoint, setting: &Setting) -> Checkpoint {
    match setting.breach {
        Some(Breach::GraceNotRestored) => Checkpoint {
            grace_left_ms: 0,
            ..checkpoint
        },
        _ => checkpoint,
    }
}

/// Only what future transitions depend on. Leases are as granted, without the grace period: when it is left out of a
/// transition, a lease that it stretches differs from one that was granted for as long.
impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let clock = LeaseClock::at(Instant::default());
        for holder in self.lock.holders() {
            (holder.owner(), holder.fence(), holder.limit().get()).hash(state);
            (holder.holds(), holder.lease_end(clock)).hash(state);
        }
        let Self { state: core, .. } = self;
        (&core.fences, &core.grace, core.checkpoint_due).hash(state);
        (self.random, &self.live_at_grace_begin).hash(state);
    }
}
