//! Events of the server, passed to the engine.

use std::ffi::{CStr, c_int};

use dlock_core::cluster::fences::NodeId;
use dlock_core::cluster::slots::SlotSet;
use dlock_core::engine::{Process, announcements, events, grace, held_back, scheduler, slot_events};

use crate::host::state::module_state;
use crate::host::{MESSAGE_TYPE, policy, snapshot_clock};
use crate::redis::{Ctx, Events, Gil, Receiver, SlotMigration};

pub struct DlockEvents;

impl Events for DlockEvents {
    fn cron(ctx: &mut Ctx<'_>) {
        module_state(ctx).readers.forget_unblocked();
        scheduler::run_jobs(ctx);
    }

    fn loading_began(ctx: &mut Ctx<'_>) {
        events::loading_began(ctx);
    }

    fn loading_ended(ctx: &mut Ctx<'_>) {
        events::loading_ended(ctx);
    }

    fn role_changed(ctx: &mut Ctx<'_>, is_primary: bool) {
        events::role_changed(ctx, is_primary);
    }

    fn forked(ctx: &mut Ctx<'_>) {
        let is_rewrite = ctx.info_number(c"persistence", c"aof_rewrite_in_progress") > Some(0);
        events::snapshot_began(ctx, is_rewrite);
    }

    fn save_began_without_fork(ctx: &mut Ctx<'_>) {
        events::snapshot_began(ctx, false);
        snapshot_clock::note(ctx);
    }

    fn replica_online(ctx: &mut Ctx<'_>) {
        events::replica_online(ctx);
    }

    fn replica_acknowledges(gil: &mut Gil<'_>) {
        held_back::look_soon(gil);
    }

    fn flush_began(ctx: &mut Ctx<'_>, db: c_int) {
        events::flush_began(ctx, db);
    }

    fn swapped(ctx: &mut Ctx<'_>, dbs: [c_int; 2]) {
        events::swapped(ctx, dbs);
    }

    fn config_changed(ctx: &mut Ctx<'_>, names: &[&CStr]) {
        let before = ctx.state().server.policy().graces;
        policy::refresh::<Self>(ctx);
        let is_set = |name: &str| names.iter().any(|set| set.to_bytes() == name.as_bytes());
        grace::shorten(ctx, is_set, before);
    }

    fn slots_trimmed(ctx: &mut Ctx<'_>, slots: &SlotSet) {
        slot_events::slots_trimmed(ctx, slots);
    }

    fn slot_migration(ctx: &mut Ctx<'_>, event: SlotMigration) {
        match event {
            SlotMigration::ExportBegan => slot_events::slots_leave(ctx),
            SlotMigration::ExportEnded => slot_events::slots_have_left(ctx),
            SlotMigration::Import => slot_events::slots_come(ctx),
        }
    }
}

impl Receiver for DlockEvents {
    const MESSAGE_TYPE: u8 = MESSAGE_TYPE;

    fn received(ctx: &mut Ctx<'_>, sender: NodeId, message: &[u8]) {
        announcements::receive(ctx, sender, message);
    }
}
