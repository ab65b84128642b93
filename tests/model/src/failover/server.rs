//! A server with one lock: the state that the module keeps, and how it drives the core.

use std::hash::{Hash, Hasher};

use super::setting::{Breach, Setting};
use dlock_core::{
    Acquire, Acquired, Checkpoint, Effects, Engine, Error, Extend, Fences, GrantRef, Holder, Instant, Lock,
    LockRef, Release, TransitionContext, WaitPolicy, WallClock, decode_lock, encode_lock,
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
    Release(Release<'a>),
    Checkpoint(Checkpoint),
}

impl Server {
    pub fn starting() -> Self {
        Self {
            lock: Lock::default(),
            engine: Engine::starting(),
            random: 0,
            live_at_grace_begin: Vec::new(),
        }
    }

    /// Loads an RDB file. Leases start again now.
    pub fn load(saved: &Saved, now: Instant, setting: &Setting) -> Self {
        let mut server = Self::starting();
        if !saved.lock.is_empty() {
            server.lock = decode_lock(&saved.lock, now).expect("a lock that was stored");
        }
        let (checkpoint, cx) = (received(saved.checkpoint, setting), TransitionContext::at(now));
        server.engine.observe_lock(&server.lock, &cx);
        server.engine.restore_checkpoint(checkpoint, now);
        server
    }

    pub fn save(&self, now: Instant) -> Saved {
        let encoded = || encode_lock(&self.lock, &self.engine.context(now));
        Saved {
            lock: if self.lock.is_free() {
                Vec::new()
            } else {
                encoded()
            },
            checkpoint: self.engine.checkpoint(now),
        }
    }

    pub fn promote(&mut self, setting: &Setting, random: u64) {
        self.random = random;
        self.engine.promote();
        if setting.breach == Some(Breach::NoFenceGap) {
            // As if it had been advanced long ago.
            let mut fences = Fences::starting();
            fences.advance(WallClock::from_unix_ms(LONG_AGO_UNIX_MS), 0);
            fences.observe(self.engine.fences.known());
            self.engine.fences = fences;
        }
    }

    /// The context of a transition. A pending grace period starts first.
    fn cx(&mut self, now: Instant, setting: &Setting) -> TransitionContext {
        self.start_grace_if_pending(now, setting);
        let mut cx = self.engine.context(now);
        if setting.breach == Some(Breach::ExpiredLeasesExtended) {
            cx.grace_begin = Instant::DISTANT_PAST;
        }
        cx
    }

    pub fn start_grace_if_pending(&mut self, now: Instant, setting: &Setting) {
        let before = self.engine.context(now);
        if self.engine.start_grace_if_pending(true, &setting.graces(), now) {
            let live = self.lock.holders().iter().filter(|holder| before.is_live(holder));
            self.live_at_grace_begin = live.map(Holder::fence).collect();
        }
    }

    pub fn in_grace(&self, now: Instant) -> bool {
        self.engine.grace.end() > now
    }

    pub fn advance_fences(&mut self, now: Instant, clock: WallClock, setting: &Setting) {
        let was_due = self.engine.checkpoint_due;
        let now = match setting.breach {
            Some(Breach::FencesAdvancedBeforeGrace) => now.max(self.engine.grace.end()),
            _ => now,
        };
        self.engine.advance_fences_if_due(now, clock, self.random);
        // An empty checkpoint is not sent. Dropping it here keeps the number of states small.
        self.engine.checkpoint_due &= was_due || self.engine.fences.known() > 0;
    }

    pub fn next_fence(&mut self) -> u64 {
        self.engine.fences.next_fence(NAME, None).expect("a fence")
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
        let mut holders = self.lock.holders().iter();
        let is_holder = holders.any(|holder| holder.owner() == request.owner);
        if setting.breach == Some(Breach::ReentryInGrace) && is_holder {
            cx.grace_end = Instant::DISTANT_PAST;
        }
        self.advance_fences(now, clock, setting);
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
            Some(Breach::LeasesNotExtended) => cx.grace_end = Instant::DISTANT_PAST,
            // The core must see neither the grace period nor the lease that it extends.
            Some(Breach::ExtendWithoutFence) => {
                cx.grace_end = Instant::DISTANT_PAST;
                request.grant = GrantRef::Current;
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

    /// Removes expired holders.
    pub fn sweep(&mut self, now: Instant, setting: &Setting, effects: &mut Effects) {
        let cx = self.cx(now, setting);
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        transition.expire_holders();
    }

    /// The checkpoint that the cron replicates, if one is due.
    pub fn due_checkpoint(&mut self, now: Instant) -> Option<Message<'static>> {
        let checkpoint = self.engine.checkpoint(now);
        let due = std::mem::take(&mut self.engine.checkpoint_due) || checkpoint.grace_left_ms > 0;
        (due && checkpoint != Checkpoint::default()).then_some(Message::Checkpoint(checkpoint))
    }

    /// On a replica: applies a command of the primary.
    pub fn apply(&mut self, message: &Message<'_>, now: Instant, setting: &Setting) {
        let (effects, cx) = (&mut Effects::default(), self.engine.context(now));
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, effects);
        match message {
            Message::Change(change) => {
                let applied = transition.apply(change);
                applied.expect("a change that the primary encoded");
            }
            Message::Release(request) => {
                let applied = transition.apply_release(request);
                applied.expect("a release that the primary executed");
            }
            Message::Checkpoint(checkpoint) => {
                self.engine.apply_checkpoint(received(*checkpoint, setting), now);
            }
        }
    }
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

/// Only what future transitions depend on: when leases end, not how they were extended.
impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let cx = self.engine.context(Instant::default());
        for holder in self.lock.holders() {
            (holder.owner(), holder.fence(), holder.limit().get()).hash(state);
            (holder.holds(), cx.lease_end(holder)).hash(state);
        }
        (
            &self.engine.fences,
            &self.engine.grace,
            self.engine.checkpoint_due,
        )
            .hash(state);
        (self.random, &self.live_at_grace_begin).hash(state);
    }
}
