//! Events of the server. The handlers only schedule work; the next command or tick does it.

use std::ffi::{CStr, c_int};

use dlock_core::Instant;
use dlock_core::cluster::fences::NodeId;
use dlock_core::cluster::nodes::LocalSlots;
use dlock_core::cluster::slots::SlotSet;

use crate::background::{grace, scheduler};
use crate::change::{readers, restored};
use crate::redis::{Ctx, Events, Receiver, SlotMigration};
use crate::state::cluster::fences;
use crate::state::inputs::role;
use crate::state::module_state::HasState;
use crate::state::{clock, policy, snapshot_clock, wait_timer};

pub struct DlockEvents;

impl Events for DlockEvents {
    fn cron(ctx: &mut Ctx<'_>) {
        scheduler::run_jobs(ctx);
    }

    fn loading_began(ctx: &mut Ctx<'_>) {
        // No client is served from now on, and nothing ticks: entries of emptied databases need not take memory
        // besides what is being loaded.
        while ctx.state().expiry.free_chunk() {}
    }

    fn loading_ended(ctx: &mut Ctx<'_>) {
        let flags = ctx.flags();
        // A node of a cluster takes itself for a primary until its first cron has read its role. That comes before the
        // first tick of the module, and before the node serves any slot.
        if !flags.is_cluster() {
            let now = clock::now();
            ctx.state().server.start_grace_if_pending(role(flags), now);
        }
    }

    fn role_changed(ctx: &mut Ctx<'_>, is_primary: bool) {
        let state = ctx.state();
        state.replication_targets.has_no_replicas = false;
        // The slots of a node that is promoted are found by the next tick, and claimed together.
        state.schedule.next_refresh = Instant::DISTANT_PAST;
        if let Some(cluster) = &mut state.server.cluster {
            cluster.fences.retain_claims(&SlotSet::EMPTY);
        }
        if is_primary {
            state.server.promote();
        } else {
            // The server logs this and has unblocked all waiters. Valkey 9 keeps those of a cluster node: see `GrantGate`.
            for call in state.server.demote() {
                readers::wake(ctx, call);
            }
        }
        wait_timer::arm(ctx);
    }

    /// A replica that takes the snapshot needs all that comes after it. On servers without `aux_save2` the snapshot
    /// lacks the fence counter and the grace period: an AOF that begins with it gets them as a checkpoint.
    fn forked(ctx: &mut Ctx<'_>) {
        scheduler::refresh_replication_targets(ctx);
        if ctx.info_number(c"persistence", c"aof_rewrite_in_progress") > Some(0) {
            scheduler::request_checkpoint(ctx);
        }
    }

    /// A replica may resume from this snapshot's replication offset, so encode every change from here on.
    fn save_began_without_fork(ctx: &mut Ctx<'_>) {
        scheduler::refresh_replication_targets(ctx);
        snapshot_clock::note(ctx);
    }

    /// Its snapshot lacked the same as one of a fork.
    fn replica_online(ctx: &mut Ctx<'_>) {
        scheduler::request_checkpoint(ctx);
    }

    fn flush_began(ctx: &mut Ctx<'_>, db: c_int) {
        restored::observe_all(ctx);
        let state = ctx.state();
        state.expiry.flush(db);
        state
            .server
            .wait_table
            .schedule_db(Some(db).filter(|db| *db >= 0));
        wait_timer::arm(ctx);
    }

    fn swapped(ctx: &mut Ctx<'_>, dbs: [c_int; 2]) {
        let state = ctx.state();
        let [first, second] = dbs;
        state.expiry.swap(first, second);
        for db in dbs {
            state.server.wait_table.schedule_db(Some(db));
        }
        wait_timer::arm(ctx);
    }

    fn config_changed(ctx: &mut Ctx<'_>, names: &[&CStr]) {
        let before = ctx.state().server.policy().graces;
        policy::refresh(ctx);
        grace::shorten(ctx, names, before);
    }

    /// No value gets a call of `unlink`.
    fn slots_trimmed(ctx: &mut Ctx<'_>, slots: &SlotSet) {
        ctx.state().expiry.remove_slots(slots);
        scheduler::refresh_soon(ctx);
    }

    /// The snapshot of the slots is taken later, and the node that imports them gets all that comes after it. When they
    /// have gone, their waiters are redirected.
    fn slot_migration(ctx: &mut Ctx<'_>, event: SlotMigration) {
        let state = ctx.state();
        let exports = &mut state.replication_targets.exports;
        match event {
            SlotMigration::ExportBegan => *exports = exports.saturating_add(1),
            SlotMigration::ExportEnded => *exports = exports.saturating_sub(1),
            // Until the next look they may seem to be here, if they were a moment ago.
            SlotMigration::Import => state.server.cluster().0.slots = LocalSlots::default(),
        }
        scheduler::refresh_soon(ctx);
    }
}

impl Receiver for DlockEvents {
    const MESSAGE_TYPE: u8 = fences::MESSAGE_TYPE;

    fn received(ctx: &mut Ctx<'_>, sender: NodeId, message: &[u8]) {
        fences::receive(ctx.state(), sender, message);
    }
}
