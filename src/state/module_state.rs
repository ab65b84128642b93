//! The module's own state: one for the process.
//!
//! `ctx.state()` borrows the context. A call of the server needs that too, so that no callback finds the state in use:
//! see [`crate::redis`].

use std::collections::VecDeque;

use dlock_core::cluster_fences::ClusterFences;
use dlock_core::cluster_slots::LocalSlots;
use dlock_core::expiry::{ExpiryIndex, LongestHold};
use dlock_core::{Effects, Engine, Instant, LockName, TransitionContext};

use crate::redis::{Ctx, Flags, Gil, GilCell, KeyspaceScan, Timer, clock, log};
use crate::state::clients::{Clients, UndeliveredGrant};
use crate::state::config;
use crate::state::counters::Counters;
use crate::state::footprint::Footprint;
use crate::state::replication_targets::ReplicationTargets;

/// What the module knows besides the locks themselves.
pub struct State {
    /// Fence counter, grace period and queues.
    pub engine: Engine,
    pub replication_targets: ReplicationTargets,
    pub expiry: ExpiryIndex,
    pub footprint: Footprint,
    /// Names under which a client may have restored a lock: see [`crate::change::restored`].
    pub restored: Vec<LockName>,
    pub longest_hold: LongestHold,
    /// What this node of a cluster knows of the fences of the others.
    pub cluster_fences: ClusterFences,
    /// The cluster slots that were here at the last look.
    pub local_slots: LocalSlots,
    pub counters: Counters,
    /// The clients in the queues.
    pub clients: Clients,
    /// Grants whose clients were gone, and when to try next to roll them back.
    pub grants_to_roll_back: VecDeque<UndeliveredGrant>,
    pub rollback_not_before: Instant,
    /// `maxmemory` is set and `maxmemory-policy` may evict locks.
    pub evictable: bool,
    pub schedule: Schedule,
    /// Empty effects, kept for their memory.
    pub effects_scratch: Option<Box<Effects>>,
}

/// When the jobs of [`crate::background::scheduler`] run next.
pub struct Schedule {
    /// For what is due in the queues.
    pub wait_timer: Option<Timer>,
    /// What it calls. Set at load.
    pub on_wait_timer: fn(&mut Ctx<'_>),
    /// For the rest of the work that the cron began.
    pub slice_timer: Option<Timer>,
    /// Cron and timer may be due in one pass of the server's loop: clients would wait for both.
    pub next_expiry_slice: Instant,
    pub next_checkpoint: Instant,
    pub next_refresh: Instant,
    /// A scan of the keyspace for untracked locks, and the number of their moves when it began.
    pub scan: Option<(KeyspaceScan, u64)>,
    /// The end of the last scan that did not find all, and the number of moves when it began.
    pub last_scan: (Instant, u64),
    pub next_scan_log: Instant,
    /// The begin of the current grace period is logged.
    pub grace_logged: bool,
    /// Waiters that were dropped and not logged yet.
    pub dropped_waiters: usize,
}

impl State {
    /// What a transition depends on besides the lock. The clock is read here, once for each command.
    pub fn transition_context(&mut self, flags: Flags) -> TransitionContext {
        let now = clock::now();
        self.start_pending_grace(flags, now);
        TransitionContext {
            evictable: self.evictable && !config::allow_eviction(),
            ..self.engine.context(now)
        }
    }

    /// The same where leases are only looked at.
    pub fn lease_context(&self) -> TransitionContext {
        self.engine.context(clock::now())
    }

    /// Starts a pending grace period, which replicas and the AOF get as a checkpoint.
    pub fn start_pending_grace(&mut self, flags: Flags, now: Instant) {
        // Asked before every command: the settings are read only when they matter.
        if self.engine.grace.is_pending()
            && !flags.is_loading()
            && self
                .engine
                .start_grace_if_pending(flags.is_primary(), &config::graces(), now)
        {
            self.log_grace(now);
        }
    }

    /// Logs when a grace period begins and ends.
    pub fn log_grace(&mut self, now: Instant) {
        let left_ms = self.engine.grace.left_ms(now);
        if self.schedule.grace_logged != (left_ms > 0) {
            self.schedule.grace_logged = left_ms > 0;
            if left_ms > 0 {
                log::notice(&format!(
                    "grace period began: no lock is granted for {left_ms} ms"
                ));
            } else {
                log::notice("grace period ended: locks are granted again");
            }
        }
    }

    /// There are no waiters, and no grant is to be rolled back.
    pub fn has_no_waiters(&self) -> bool {
        self.engine.wait_table.is_empty() && self.grants_to_roll_back.is_empty()
    }

    /// When something in the queues, or a restored lock, is due next.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let rollback = (!self.grants_to_roll_back.is_empty()).then_some(self.rollback_not_before);
        let restored = (!self.restored.is_empty()).then_some(Instant::DISTANT_PAST);
        rollback
            .into_iter()
            .chain(restored)
            .chain(self.engine.wait_table.next_wakeup())
            .min()
    }
}

impl Gil<'_> {
    pub fn state(&mut self) -> &mut State {
        STATE.get(self)
    }
}

pub static STATE: GilCell<State> = GilCell::new(State {
    engine: Engine::starting(),
    replication_targets: ReplicationTargets::unknown(),
    expiry: ExpiryIndex::new(),
    footprint: Footprint::new(),
    restored: Vec::new(),
    longest_hold: LongestHold::none(),
    cluster_fences: ClusterFences::new(),
    local_slots: LocalSlots::EMPTY,
    counters: Counters::new(),
    clients: Clients::new(),
    grants_to_roll_back: VecDeque::new(),
    rollback_not_before: Instant::DISTANT_PAST,
    evictable: false,
    schedule: Schedule {
        wait_timer: None,
        on_wait_timer: |_| {},
        slice_timer: None,
        next_expiry_slice: Instant::DISTANT_PAST,
        next_checkpoint: Instant::DISTANT_PAST,
        next_refresh: Instant::DISTANT_PAST,
        scan: None,
        last_scan: (Instant::DISTANT_PAST, 0),
        next_scan_log: Instant::DISTANT_PAST,
        grace_logged: false,
        dropped_waiters: 0,
    },
    effects_scratch: None,
});
