//! A server as far as one lock goes: what the module's shell keeps, and how it drives the core.

use std::hash::{Hash, Hasher};

use super::setting::{Breach, Setting};
use dlock_core::{
    Acquire, Acquired, Checkpoint, Effects, Engine, Error, Extend, Fences, Holder, Instant, Lock, LockRef,
    Release, TransitionContext, WaitPolicy, WallClock, decode_lock, encode_lock,
};

const NAME: LockRef<'_> = LockRef { db: 0, key: b"lock" };
/// Requests of this model do not wait.
const POLICY: WaitPolicy = WaitPolicy {
    max_waiters: 0,
    detect_deadlocks: false,
};

const LONG_AGO_UNIX_MS: u64 = 1_710_000_000_000;

#[derive(Clone)]
pub struct Server {
    pub lock: Lock,
    pub engine: Engine,
    /// What its random numbers are.
    pub dice: u64,
    /// The fences of the holders whose lease ran when its grace began.
    pub kept: Vec<u64>,
}

/// What is stored, or handed to a replica as a whole.
#[derive(Clone, Default, Hash)]
pub struct Saved {
    lock: Vec<u8>,
    checkpoint: Checkpoint,
}

/// What reaches replicas and the log.
pub enum Told<'a> {
    Change(&'a [u8]),
    Release(Release<'a>),
    Sync(Checkpoint),
}

impl Server {
    pub fn starting() -> Self {
        Self {
            lock: Lock::default(),
            engine: Engine::starting(),
            dice: 0,
            kept: Vec::new(),
        }
    }

    /// Reads what was stored. The leases count from now.
    pub fn load(saved: &Saved, now: Instant, setting: &Setting) -> Self {
        let mut server = Self::starting();
        if !saved.lock.is_empty() {
            server.lock = decode_lock(&saved.lock, now).expect("it was stored");
        }
        server
            .engine
            .observe_lock(&server.lock, &TransitionContext::at(now));
        server
            .engine
            .restore_checkpoint(known(saved.checkpoint, setting), now);
        server
    }

    pub fn save(&self, now: Instant) -> Saved {
        let is_free = self.lock.is_free();
        Saved {
            lock: if is_free {
                Vec::new()
            } else {
                encode_lock(&self.lock, &self.engine.context(now))
            },
            checkpoint: self.engine.checkpoint(now),
        }
    }

    pub fn promote(&mut self, setting: &Setting, dice: u64) {
        self.dice = dice;
        self.engine.promote();
        if setting.breach == Some(Breach::NoRaise) {
            // As if it had been advanced long ago.
            let mut fences = Fences::starting();
            fences.advance(WallClock::from_unix_ms(LONG_AGO_UNIX_MS), 0);
            fences.observe(self.engine.fences.known());
            self.engine.fences = fences;
        }
    }

    /// The context of a decision: what is pending starts.
    fn cx(&mut self, now: Instant, setting: &Setting) -> TransitionContext {
        self.settle(now, setting);
        let mut cx = self.engine.context(now);
        if setting.breach == Some(Breach::EndedProlonged) {
            cx.grace_begin = Instant::DISTANT_PAST;
        }
        cx
    }

    /// A grace period starts, if one is pending.
    pub fn settle(&mut self, now: Instant, setting: &Setting) {
        let before = self.engine.context(now);
        if self.engine.start_grace_if_pending(true, &setting.graces(), now) {
            let live = self.lock.holders().iter().filter(|holder| before.is_live(holder));
            self.kept = live.map(Holder::fence).collect();
        }
    }

    pub fn in_grace(&self, now: Instant) -> bool {
        self.engine.grace.end() > now
    }

    pub fn advance_fences(&mut self, clock: WallClock) {
        let was_due = self.engine.checkpoint_due;
        self.engine.advance_fences_if_pending(clock, self.dice);
        // An empty checkpoint is not sent. Drop it here already: that keeps the number of states small.
        self.engine.checkpoint_due &= was_due || self.engine.fences.known() > 0;
    }

    pub fn acquire(
        &mut self,
        request: &Acquire<'_>,
        now: Instant,
        clock: WallClock,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<Acquired, Error> {
        let mut cx = self.cx(now, setting);
        let is_known = self
            .lock
            .holders()
            .iter()
            .any(|holder| holder.owner() == request.owner);
        if setting.breach == Some(Breach::ReentryInGrace) && is_known {
            cx.grace_end = Instant::DISTANT_PAST;
        }
        self.advance_fences(clock);
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        transition.acquire(request, POLICY)
    }

    pub fn extend(
        &mut self,
        request: &Extend<'_>,
        now: Instant,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        let mut cx = self.cx(now, setting);
        let mut request = *request;
        match setting.breach {
            Some(Breach::NotProlonged) => cx.grace_end = Instant::DISTANT_PAST,
            // It has to be hidden from the core that there is a grace, and which lease that prolongs.
            Some(Breach::ExtendWithoutFence) => {
                cx.grace_end = Instant::DISTANT_PAST;
                request.fence = None;
            }
            _ => {}
        }
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        transition.extend(&request)
    }

    pub fn release(
        &mut self,
        request: &Release<'_>,
        now: Instant,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        let cx = self.cx(now, setting);
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        transition.release(request)
    }

    /// Expired leases are swept.
    pub fn sweep(&mut self, now: Instant, setting: &Setting, effects: &mut Effects) {
        let cx = self.cx(now, setting);
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        transition.expire_holders();
    }

    /// What a cron sends to replicas and the log.
    pub fn sync(&mut self, now: Instant) -> Option<Told<'static>> {
        let checkpoint = self.engine.checkpoint(now);
        let due = std::mem::take(&mut self.engine.checkpoint_due) || checkpoint.grace_left_ms > 0;
        (due && checkpoint != Checkpoint::default()).then_some(Told::Sync(checkpoint))
    }

    /// As a replica: applies what the primary sent.
    pub fn hear(&mut self, told: &Told<'_>, now: Instant, setting: &Setting) {
        let (effects, cx) = (&mut Effects::default(), self.engine.context(now));
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        match told {
            Told::Change(change) => {
                transition.apply(change).expect("a transition wrote it");
            }
            Told::Release(request) => {
                transition.apply_release(request).expect("it happened there");
            }
            Told::Sync(checkpoint) => self.engine.apply_checkpoint(known(*checkpoint, setting), now),
        }
    }
}

/// What a server takes note of.
fn known(checkpoint: Checkpoint, setting: &Setting) -> Checkpoint {
    match setting.breach {
        Some(Breach::GraceForgotten) => Checkpoint {
            grace_left_ms: 0,
            ..checkpoint
        },
        _ => checkpoint,
    }
}

/// By what it will do. How a lease came to end when it does makes no difference, nor do counts of the past.
impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let cx = self.engine.context(Instant::default());
        for holder in self.lock.holders() {
            (
                holder.owner(),
                holder.fence(),
                holder.limit().get(),
                holder.holds(),
            )
                .hash(state);
            cx.lease_end(holder).hash(state);
        }
        (
            &self.engine.fences,
            &self.engine.grace,
            self.engine.checkpoint_due,
            self.dice,
            &self.kept,
        )
            .hash(state);
    }
}
