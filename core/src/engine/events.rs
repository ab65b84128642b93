//! What the engine does at events of the server. Nothing here grants a lock: queues only become due, because a grant that
//! is replicated from inside an event could precede the command that has caused it.

use super::host::{Host, Process};
use super::{held_back, restored, scheduler, wait_timer};
use crate::cluster::slots::SlotSet;
use crate::time::Instant;

/// The server begins to load its files. No client is served from now on, and nothing ticks: entries of emptied databases
/// need not take memory besides what is being loaded.
pub fn loading_began(process: &mut impl Process) {
    while process.state().expiry.free_chunk() {}
}

/// The server has loaded its files. A node of a cluster takes itself for a primary until its first cron has read its role.
/// That comes before the first tick of the module, and before the node serves any slot.
pub fn loading_ended(host: &mut impl Host) {
    let flags = host.flags();
    if !flags.is_cluster {
        let now = host.now();
        host.state().server.start_grace_if_pending(flags.role(), now);
    }
}

/// The server was promoted, or follows another one from now on.
pub fn role_changed(process: &mut impl Process, is_primary: bool) {
    held_back::end_all(process);
    let state = process.state();
    state.replication_targets.has_no_replicas = false;
    // The slots of a node that is promoted are found by the next tick, and claimed together.
    state.schedule.next_refresh = Instant::DISTANT_PAST;
    if let Some(cluster) = &mut state.server.cluster {
        cluster.fences.retain_claims(&SlotSet::EMPTY);
    }
    if is_primary {
        state.server.promote();
    } else {
        // The server logs this and has unblocked all waiters. Valkey 9 keeps those of a cluster node: see `gate`.
        for call in state.server.demote() {
            process.wake(call);
        }
    }
    held_back::look_soon(process);
    wait_timer::arm(process);
}

/// A snapshot begins: a replica that takes it needs all that comes after it, and may resume from its offset. `is_rewrite`:
/// an append-only file will begin with it. On servers without `aux_save2` it lacks the fence counter and the grace
/// period, so that the file gets them as a checkpoint.
pub fn snapshot_began(host: &mut impl Host, is_rewrite: bool) {
    scheduler::refresh_replication_targets(host);
    if is_rewrite {
        scheduler::request_checkpoint(host);
    }
}

/// A replica follows from now on. Its snapshot lacked the same.
pub fn replica_online(process: &mut impl Process) {
    held_back::look_soon(process);
    scheduler::request_checkpoint(process);
}

/// A database is about to be emptied; -1 = all of them.
pub fn flush_began(host: &mut impl Host, db: i32) {
    restored::adopt_all(host);
    let state = host.state();
    state.expiry.flush(db);
    state
        .server
        .wait_table
        .schedule_db(Some(db).filter(|db| *db >= 0));
    wait_timer::arm(host);
}

/// Two databases were swapped.
pub fn swapped(process: &mut impl Process, dbs: [i32; 2]) {
    let state = process.state();
    let [first, second] = dbs;
    state.expiry.swap(first, second);
    for db in dbs {
        state.server.wait_table.schedule_db(Some(db));
    }
    wait_timer::arm(process);
}
