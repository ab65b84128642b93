//! All lock state of a server except the locks themselves, which live in its keyspace.

use super::context::TransitionContext;
use super::effects::Effects;
use super::fence::{AdvanceReason, Fence, Fences, WallClock};
use super::grace::{Grace, GraceLength, GraceSettings};
use super::lock::Lock;
use super::name::LockRef;
use super::time::Instant;
use super::transition::Transition;
use super::wait_table::WaitTable;

/// The state that all locks of a server share.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The counter of fencing tokens.
    pub fences: Fences,
    /// The grace period.
    pub grace: Grace,
    /// The queues of all locks.
    pub wait_table: WaitTable,
    /// Replicas and the append-only file need a new [`Checkpoint`].
    pub checkpoint_due: bool,
}

/// What a primary knows besides its locks: DLOCK.SYNC and the auxiliary data of an RDB file carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The highest fence known.
    pub fence: Fence,
    /// What remains of the grace period.
    pub grace_left_ms: u64,
}

impl Engine {
    /// A server that starts: it knows nothing yet.
    pub const fn starting() -> Self {
        Self {
            fences: Fences::starting(),
            grace: Grace::starting(),
            wait_table: WaitTable::new(),
            checkpoint_due: false,
        }
    }

    /// The circumstances at `now`, on a server that cannot evict locks.
    pub fn context(&self, now: Instant) -> TransitionContext {
        TransitionContext {
            now,
            grace_begin: self.grace.begin(),
            grace_end: self.grace.end(),
            evictable: false,
            max_min_fence: None,
        }
    }

    /// The largest MINFENCE that a server of a quorum accepts: what the others may have issued, if their clocks are
    /// closer to this one than its startup grace period.
    pub fn max_min_fence(&self, clock: WallClock, startup_grace: GraceLength) -> Fence {
        self.fences
            .max_min_fence(clock, self.grace.length_ms(startup_grace))
    }

    /// Begins a transition of the lock called `name`. Clear `effects` first.
    pub fn begin<'a>(
        &'a mut self,
        name: LockRef<'a>,
        lock: &'a mut Lock,
        cx: &'a TransitionContext,
        effects: &'a mut Effects,
    ) -> Transition<'a> {
        Transition::new(self, name, lock, cx, effects)
    }

    /// This server is the primary now.
    pub fn promote(&mut self) {
        self.fences.request_advance(AdvanceReason::Promotion);
        self.grace.promoted();
    }

    /// This server is a replica now.
    pub fn demote(&mut self) {
        self.grace.demoted();
        self.wait_table.schedule_db(None, Instant::DISTANT_PAST);
    }

    /// Starts a grace period if one is pending. Call it before every decision, but not while loading. Returns
    /// whether one started.
    pub fn start_grace_if_pending(
        &mut self,
        is_primary: bool,
        settings: &GraceSettings,
        now: Instant,
    ) -> bool {
        let started = self.grace.start_if_pending(is_primary, settings, now);
        self.checkpoint_due |= started;
        started
    }

    /// Whether the fence counter has to advance. Ask before every grant.
    pub fn is_fence_advance_due(&self, now: Instant) -> bool {
        self.fences.is_advance_due(self.grace.end() > now)
    }

    /// Advances the fence counter if that is due.
    pub fn advance_fences_if_due(&mut self, now: Instant, clock: WallClock, random: u64) {
        if self.is_fence_advance_due(now) {
            self.fences.advance(clock, random);
            self.checkpoint_due = true;
        }
    }

    /// What replicas and the append-only file have to know at `now`.
    pub fn checkpoint(&self, now: Instant) -> Checkpoint {
        Checkpoint {
            fence: self.fences.known(),
            grace_left_ms: self.grace.left_ms(now),
        }
    }

    /// Applies a checkpoint from the primary or the append-only file.
    pub fn apply_checkpoint(&mut self, checkpoint: Checkpoint, now: Instant) {
        self.fences.observe(checkpoint.fence);
        self.grace.observe(checkpoint.grace_left_ms, now);
    }

    /// Restores a checkpoint that was stored together with the locks that are loaded now.
    pub fn restore_checkpoint(&mut self, checkpoint: Checkpoint, now: Instant) {
        self.fences.observe(checkpoint.fence);
        self.grace.restore(checkpoint.grace_left_ms, now);
    }

    /// Takes note of the fences and leases of a lock that was granted elsewhere or earlier.
    pub fn observe_lock(&mut self, lock: &Lock, cx: &TransitionContext) {
        for holder in lock.holders() {
            self.fences.observe(holder.fence());
            self.grace.observe_lease(cx.lease_ms(holder));
        }
    }
}
