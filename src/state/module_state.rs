//! The module's own state: one for the process.
//!
//! `ctx.state()` borrows the context. A call of the server needs that too, so that no callback finds the state in use:
//! see [`crate::redis`].

use dlock_core::expiry::{ExpiryIndex, LongestHold};
use dlock_core::{Effects, Instant, LeaseClock, LockName, ServerState};

use crate::redis::{Ctx, Flags, Gil, GilCell, Timer, log};
use crate::state::counters::{Counters, increment};
use crate::state::inputs::role;
use crate::state::readers::Readers;
use crate::state::replication_targets::ReplicationTargets;
use crate::state::{clock, config};

/// What the module knows besides the locks themselves.
#[derive(Default)]
pub struct ModuleState {
    /// What all locks share: fence counter, grace period, queues, settings.
    pub server: ServerState,
    pub replication_targets: ReplicationTargets,
    pub expiry: ExpiryIndex,
    /// Names under which a client may have restored a lock: see [`crate::change::restored`].
    pub restored: Vec<LockName>,
    pub longest_hold: LongestHold,
    pub counters: Counters,
    /// The clients that wait for a reply.
    pub readers: Readers,
    /// When to try next to roll back grants whose clients are gone.
    pub rollback_not_before: Instant,
    pub schedule: Schedule,
    /// Effects that have been carried out, kept for their memory.
    pub effects_scratch: Option<Box<Effects>>,
    /// Impossible states that are logged already.
    logged_errors: Vec<&'static str>,
}

/// When the jobs of [`crate::background`] run next.
#[derive(Default)]
pub struct Schedule {
    /// For what is due in the queues, and when it fires.
    pub wait_timer: Option<(Timer, Instant)>,
    /// What it calls: set at load, since the timer is armed from below the jobs that it runs.
    pub on_wait_timer: Option<fn(&mut Ctx<'_>)>,
    /// For the rest of the work that the cron began.
    pub slice_timer: Option<Timer>,
    /// Before this, clients are served: see [`crate::background::pass`].
    pub next_pass: Instant,
    pub next_checkpoint: Instant,
    pub next_refresh: Instant,
    pub next_deadlock_log: Instant,
    /// The begin of the current grace period is logged.
    pub grace_logged: bool,
    /// [`ModuleState::keeps_fence`] at the last look.
    pub kept_fence: bool,
    /// Waiters that were dropped and not logged yet.
    pub dropped_waiters: usize,
    pub moved: MovedQueues,
}

/// How far [`crate::background::moved`] is.
#[derive(Default)]
pub struct MovedQueues {
    /// The last queue that the slow walk has made due.
    pub walked: Option<LockName>,
    /// The last queue that the search has looked at.
    pub searched: Option<LockName>,
    pub is_searching: bool,
    /// The state of the cluster at the last look.
    pub is_cluster_down: bool,
}

impl ModuleState {
    /// Begins a command that only reads: by which leases are compared. The clock is read here, once for each command.
    pub fn begin_read(&mut self, flags: Flags) -> LeaseClock {
        self.server.begin_read(role(flags), clock::now())
    }

    /// Whether the module writes more than locks into RDB and log. A lock needs the module anyway.
    pub fn keeps_fence(&self) -> bool {
        let has_locks = !self.expiry.is_empty() || !self.restored.is_empty();
        config::keep_fence()
            || has_locks
            || self.server.grace.left_ms(clock::now()) > 0
            || self.server.fences.is_ahead_of(clock::wall_clock())
    }

    /// There are no waiters, and no grant is to be rolled back.
    pub fn has_no_waiters(&self) -> bool {
        self.server.wait_table.is_empty() && self.server.inboxes.undelivered() == 0
    }

    /// Whether a queue is due, or a grant can be rolled back.
    pub fn is_due(&self, now: Instant) -> bool {
        let rollback = self.server.inboxes.undelivered() > 0 && self.rollback_not_before <= now;
        rollback || self.server.wait_table.next_wakeup().is_some_and(|at| at <= now)
    }

    /// When something in the queues or inboxes, or a restored lock, is due next.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let inboxes = &self.server.inboxes;
        let rollback = (inboxes.undelivered() > 0).then_some(self.rollback_not_before);
        let restored = (!self.restored.is_empty()).then_some(Instant::DISTANT_PAST);
        rollback
            .into_iter()
            .chain(restored)
            .chain(self.server.wait_table.next_wakeup())
            .chain(inboxes.next_wakeup())
            .min()
    }

    /// Counts a state that is impossible, as far as we know, and logs the first of its kind. Tests fail.
    #[cold]
    pub fn internal_error(&mut self, what: &'static str) {
        increment(&mut self.counters.internal_errors);
        if !self.logged_errors.contains(&what) {
            self.logged_errors.push(what);
            log::warning(&format!("internal error, please report it: {what}"));
        }
        debug_assert!(false, "{what}");
    }
}

/// The state is reached through a [`Gil`], and so through each context.
pub trait HasState {
    fn state(&mut self) -> &mut ModuleState;
}

impl HasState for Gil<'_> {
    fn state(&mut self) -> &mut ModuleState {
        STATE.get(self)
    }
}

pub static STATE: GilCell<ModuleState> = GilCell::new();
