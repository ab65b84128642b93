//! The module's own state: one for the process, touched only while the server calls us.

use std::cell::RefCell;
use std::ffi::c_int;

use crate::expiry::sweeper::Schedule;
use crate::module::cluster::RaisedSlots;
use crate::module::config;
use crate::module::stats::Counters;
use crate::redis::ctx::Flags;
use crate::replication::targets::Audience;
use crate::waiting::blocked_clients::{Clients, Hold};
use crate::waiting::due::Alarm;
use dlock_core::expiry::ExpiryIndex;
use dlock_core::{Effects, Fences, Grace, Instant, Lock, Queue, TransitionContext, WaitTable};

/// What the module knows beside the locks themselves.
pub struct State {
    pub fences: Fences,
    pub grace: Grace,
    pub audience: Audience,
    pub registry: ExpiryIndex,
    pub slots: RaisedSlots,
    pub counters: Counters,
    /// The queues.
    pub waiting: WaitTable,
    /// The clients that stand in them.
    pub clients: Clients,
    /// Grants that nobody was there to receive.
    pub undeliverable: Vec<Hold>,
    pub alarm: Alarm,
    /// `maxmemory` is set and `maxmemory-policy` may evict locks.
    pub evictable: bool,
    pub schedule: Schedule,
    /// Empty effects, kept for their memory.
    pub spare: Option<Box<Effects>>,
}

impl State {
    /// Nobody waits, and nobody who did is owed anything.
    pub fn has_no_waiters(&self) -> bool {
        self.waiting.is_empty() && self.undeliverable.is_empty()
    }

    /// Runs a step on a lock with its queue.
    pub fn step<R>(
        &mut self,
        db: c_int,
        key: &[u8],
        lock: &mut Lock,
        moment: &TransitionContext,
        step: impl FnOnce(&mut Lock, &mut Queue, &mut Fences) -> R,
    ) -> R {
        let fences = &mut self.fences;
        self.waiting
            .step(db, key, lock, moment, |lock, queue| step(lock, queue, fences))
    }

    /// Begins a grace, if one is pending, and has it told to replicas and the log.
    pub fn settle_grace(&mut self, flags: Flags, now: Instant) {
        // Asked before every command: the settings are read only when they matter.
        if self.grace.is_pending()
            && !flags.is_loading()
            && self
                .grace
                .start_if_pending(flags.is_primary(), &config::graces(), now)
        {
            self.schedule.sync_due = true;
        }
    }
}

/// Access to the state.
///
/// The closure must not call the server: the server may call us back (deleting a key calls `unlink`),
/// and would find the state in use.
pub fn with<R>(access: impl FnOnce(&mut State) -> R) -> R {
    access(&mut STATE.0.borrow_mut())
}

struct ServerThread(RefCell<State>);

// SAFETY: the server calls commands, events, timers and callbacks of a data type one at a time: on its
// main thread, or on another one that has its lock. Only two callbacks can run beside them, `free` and that of
// INFO for the report of a crash, and they do not come here.
unsafe impl Sync for ServerThread {}

static STATE: ServerThread = ServerThread(RefCell::new(State {
    fences: Fences::starting(),
    grace: Grace::starting(),
    audience: Audience::unknown(),
    registry: ExpiryIndex::new(),
    slots: RaisedSlots::none(),
    counters: Counters::new(),
    waiting: WaitTable::new(),
    clients: Clients::none(),
    undeliverable: Vec::new(),
    alarm: Alarm::unset(),
    evictable: false,
    schedule: Schedule::new(),
    spare: None,
}));
