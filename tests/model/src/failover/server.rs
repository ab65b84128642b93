//! A server as far as one lock goes: what the module's shell keeps, and how it drives the core.

use std::hash::{Hash, Hasher};

use super::setting::{Breach, Setting};
use dlock_core::{
    Acquire, AdvanceReason, Effects, Error, Extend, Fences, Grace, Granted, Holder, Instant, Lock, Queue,
    Release, TransitionContext, WallClock, acquire, apply, apply_release, decode_lock, encode_lock,
    expire_holders, extend, release,
};

const LONG_AGO_UNIX_MS: u64 = 1_710_000_000_000;

#[derive(Clone)]
pub struct Server {
    pub lock: Lock,
    pub fences: Fences,
    pub grace: Grace,
    /// A grace has begun, and neither replicas nor the log know.
    pub sync_due: bool,
    /// What its random numbers are.
    pub dice: u64,
    /// The fences of the holders whose lease ran when its grace began.
    pub kept: Vec<u64>,
}

/// What is stored, or handed to a replica as a whole.
#[derive(Clone, Default, Hash)]
pub struct Saved {
    lock: Vec<u8>,
    fence: u64,
    grace_left_ms: u64,
}

/// What reaches replicas and the log.
pub enum Told<'a> {
    Change(&'a [u8]),
    Release(Release<'a>),
    Sync { fence: u64, grace_left_ms: u64 },
}

impl Server {
    pub fn starting() -> Self {
        Self {
            lock: Lock::default(),
            fences: Fences::starting(),
            grace: Grace::starting(),
            sync_due: false,
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
        server.learn_from_lock(now);
        server.fences.observe(saved.fence);
        if setting.breach != Some(Breach::GraceForgotten) {
            server.grace.restore(saved.grace_left_ms, now);
        }
        server
    }

    pub fn save(&self, now: Instant) -> Saved {
        let is_free = self.lock.is_free();
        Saved {
            lock: if is_free {
                Vec::new()
            } else {
                encode_lock(&self.lock, &self.lease_moment(now))
            },
            fence: self.fences.known(),
            grace_left_ms: self.grace.left_ms(now),
        }
    }

    pub fn promote(&mut self, setting: &Setting, dice: u64) {
        self.dice = dice;
        self.grace.promoted();
        if setting.breach == Some(Breach::NoRaise) {
            // As if it had been raised long ago.
            let mut fences = Fences::starting();
            fences.advance(WallClock::from_unix_ms(LONG_AGO_UNIX_MS), 0);
            fences.observe(self.fences.known());
            self.fences = fences;
        } else {
            self.fences.request_advance(AdvanceReason::Promotion);
        }
    }

    /// The moment of a decision: what is pending begins.
    fn moment(&mut self, now: Instant, setting: &Setting) -> TransitionContext {
        self.settle(now, setting);
        let mut moment = self.lease_moment(now);
        if setting.breach == Some(Breach::EndedProlonged) {
            moment.grace_begin = Instant::DISTANT_PAST;
        }
        moment
    }

    /// A grace begins, if one is pending.
    pub fn settle(&mut self, now: Instant, setting: &Setting) {
        let before = self.lease_moment(now);
        if self.grace.is_pending() && self.grace.start_if_pending(true, &setting.graces(), now) {
            self.sync_due = true;
            let live = self.lock.holders().iter().filter(|holder| before.is_live(holder));
            self.kept = live.map(Holder::fence).collect();
        }
    }

    fn lease_moment(&self, now: Instant) -> TransitionContext {
        TransitionContext {
            grace_begin: self.grace.begin(),
            grace_end: self.grace.end(),
            ..TransitionContext::at(now)
        }
    }

    pub fn in_grace(&self, now: Instant) -> bool {
        self.grace.end() > now
    }

    /// If it is demanded.
    pub fn raise_fences(&mut self, clock: WallClock) {
        if self.fences.advance_pending() {
            self.fences.advance(clock, self.dice);
            self.sync_due |= self.fences.known() > 0;
        }
    }

    pub fn acquire(
        &mut self,
        request: &Acquire<'_>,
        now: Instant,
        clock: WallClock,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<Option<Granted>, Error> {
        let mut moment = self.moment(now, setting);
        let is_known = self
            .lock
            .holders()
            .iter()
            .any(|holder| holder.owner() == request.owner);
        if setting.breach == Some(Breach::ReentryInGrace) && is_known {
            moment.grace_end = Instant::DISTANT_PAST;
        }
        self.raise_fences(clock);
        self.grace.observe_lease(request.lease_ms);
        acquire(
            &mut self.lock,
            &mut Queue::new(),
            request,
            &moment,
            &mut self.fences,
            effects,
        )
    }

    pub fn extend(
        &mut self,
        request: &Extend<'_>,
        now: Instant,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        let mut moment = self.moment(now, setting);
        let mut request = *request;
        match setting.breach {
            Some(Breach::NotProlonged) => moment.grace_end = Instant::DISTANT_PAST,
            // It has to be hidden from the core that there is a grace, and which lease that prolongs.
            Some(Breach::ExtendWithoutFence) => {
                moment.grace_end = Instant::DISTANT_PAST;
                request.fence = None;
            }
            _ => {}
        }
        self.grace.observe_lease(request.lease_ms);
        extend(
            &mut self.lock,
            &mut Queue::new(),
            &request,
            &moment,
            &mut self.fences,
            effects,
        )
    }

    pub fn release(
        &mut self,
        request: &Release<'_>,
        now: Instant,
        setting: &Setting,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        let moment = self.moment(now, setting);
        release(
            &mut self.lock,
            &mut Queue::new(),
            request,
            &moment,
            &mut self.fences,
            effects,
        )
    }

    /// Ended leases are swept.
    pub fn sweep(&mut self, now: Instant, setting: &Setting, effects: &mut Effects) {
        let moment = self.moment(now, setting);
        expire_holders(&mut self.lock, &moment, effects);
    }

    /// What a cron tells replicas and the log.
    pub fn sync(&mut self, now: Instant) -> Option<Told<'static>> {
        let grace_left_ms = self.grace.left_ms(now);
        let due = std::mem::take(&mut self.sync_due) || grace_left_ms > 0;
        due.then_some(Told::Sync {
            fence: self.fences.known(),
            grace_left_ms,
        })
    }

    /// As a replica: what was told happens.
    pub fn hear(&mut self, told: &Told<'_>, now: Instant, setting: &Setting) {
        let effects = &mut Effects::default();
        match told {
            Told::Change(change) => {
                apply(&mut self.lock, change, now, &mut self.fences, effects).expect("a step wrote it");
                self.learn_from_lock(now);
            }
            Told::Release(request) => {
                apply_release(&mut self.lock, request, effects).expect("it happened there");
            }
            Told::Sync { fence, grace_left_ms } => {
                self.fences.observe(*fence);
                if setting.breach != Some(Breach::GraceForgotten) {
                    self.grace.observe(*grace_left_ms, now);
                }
            }
        }
    }

    fn learn_from_lock(&mut self, now: Instant) {
        let moment = self.lease_moment(now);
        for holder in self.lock.holders() {
            self.fences.observe(holder.fence());
            self.grace.observe_lease(moment.lease_ms(holder));
        }
    }
}

/// By what it will do. How a lease came to end when it does makes no difference, nor do counts of the past.
impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let moment = self.lease_moment(Instant::default());
        for holder in self.lock.holders() {
            (
                holder.owner(),
                holder.fence(),
                holder.limit().get(),
                holder.holds(),
            )
                .hash(state);
            moment.lease_end(holder).hash(state);
        }
        (&self.fences, &self.grace, self.sync_due, self.dice, &self.kept).hash(state);
    }
}
