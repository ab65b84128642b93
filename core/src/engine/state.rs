//! The state of the engine: one for the process.

use super::counters::Counters;
use super::held_queue::HeldBack;
use super::replication_targets::ReplicationTargets;
use crate::effects::Effects;
use crate::expiry::{ExpiryIndex, LongestHold};
use crate::names::LockName;
use crate::time::{Environment, Instant};
use crate::transition::ServerState;

/// What the engine knows besides the locks themselves.
#[derive(Clone, Default)]
pub struct EngineState {
    /// What all locks share: fence counter, grace period, queues, settings.
    pub server: ServerState,
    /// Who consumes the stream of replication.
    pub replication_targets: ReplicationTargets,
    /// When each lock expires.
    pub expiry: ExpiryIndex,
    /// Names under which a client may have restored a lock: see [`super::restored`].
    pub restored: Vec<LockName>,
    /// What nobody is told before replicas have it.
    pub held_back: HeldBack,
    /// The age of the oldest hold.
    pub longest_hold: LongestHold,
    /// For INFO.
    pub counters: Counters,
    /// A setting: whether files keep the fence counter while no lock is stored.
    pub keep_fence: bool,
    /// When to try next to roll back grants whose clients are gone.
    pub(super) rollback_not_before: Instant,
    /// When the jobs run next.
    pub schedule: Schedule,
    /// Effects that have been carried out, kept for their memory.
    pub(crate) effects_scratch: Option<Box<Effects>>,
    /// Impossible states that are logged already.
    pub(super) logged_errors: Vec<&'static str>,
}

/// When the jobs of [`super::scheduler`] run next.
#[derive(Clone, Default)]
pub struct Schedule {
    /// When the timer for what is due in the queues fires.
    pub(super) wait_timer: Option<Instant>,
    /// The timer for the rest of the work that the cron began is set.
    pub(super) has_slice_timer: bool,
    /// The timer for what replicas have acknowledged is set.
    pub(super) has_sync_timer: bool,
    /// Before this, clients are served: see [`super::pass`].
    pub(super) next_pass: Instant,
    pub(super) next_checkpoint: Instant,
    /// When replicas and cluster slots are looked at again.
    pub next_refresh: Instant,
    /// When the next deadlock may be logged.
    pub next_deadlock_log: Instant,
    /// The begin of the current grace period is logged.
    pub(super) grace_logged: bool,
    /// [`EngineState::keeps_fence`] at the last look.
    pub(super) kept_fence: bool,
    /// Waiters that were dropped and not logged yet.
    pub(super) dropped_waiters: usize,
    pub(super) moved: MovedQueues,
    /// Nothing can be written: when the next queue tries. See [`super::refused`].
    pub(super) refused_until: Option<Instant>,
}

/// How far [`super::moved`] is.
#[derive(Clone, Default)]
pub(super) struct MovedQueues {
    /// The last queue that the slow walk has made due.
    pub(super) walked: Option<LockName>,
    /// The last queue that the search has looked at.
    pub(super) searched: Option<LockName>,
    pub(super) is_searching: bool,
    /// The state of the cluster at the last look.
    pub(super) is_cluster_down: bool,
}

impl EngineState {
    /// Whether the engine writes more than locks into RDB and log. A lock needs the module anyway.
    pub fn keeps_fence(&self, now: Instant, environment: &impl Environment) -> bool {
        let has_locks = !self.expiry.is_empty() || !self.restored.is_empty();
        self.keep_fence
            || has_locks
            || self.server.grace.left_ms(now) > 0
            || self.server.fences.is_ahead_of(environment.wall_clock())
    }

    /// There are no waiters, and no grant is to be rolled back.
    pub(super) fn has_no_waiters(&self) -> bool {
        self.server.wait_table.is_empty() && self.server.inboxes.undelivered() == 0
    }

    /// Whether a queue is due, or a grant can be rolled back.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let rollback = self.server.inboxes.undelivered() > 0 && self.rollback_not_before <= now;
        rollback || self.server.wait_table.next_wakeup().is_some_and(|at| at <= now)
    }

    /// When something in the queues or inboxes, or a restored lock, is due next.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let inboxes = &self.server.inboxes;
        let rollback = (inboxes.undelivered() > 0).then_some(self.rollback_not_before);
        let restored = (!self.restored.is_empty()).then_some(Instant::DISTANT_PAST);
        let refused = self.schedule.refused_until;
        let refused = refused.filter(|_| !self.server.wait_table.is_empty());
        rollback
            .into_iter()
            .chain(restored)
            .chain(refused)
            .chain(self.server.wait_table.next_wakeup())
            .chain(inboxes.next_wakeup())
            .chain(self.held_back.until())
            .min()
    }
}
