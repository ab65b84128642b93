//! Queues in cluster slots that have left this node, and all queues while the cluster is down: they become due, so that
//! their waiters are told.
//!
//! The server does not say that a slot has left. Once a second its slots are compared with those at the last look. Only
//! after a change are all queues looked at, a slice at a time, after those that are due, and only those whose slot is not
//! here become due. What that does not show, a slow walk over all queues finds.

use super::host::{Host, Process};
use super::pass::Pass;
use super::wait_timer;
use crate::cluster::slots::slot_of;
use crate::names::LockName;
use crate::time::Instant;

const SLICE_MS: u64 = 1;
/// The queues between two looks at the clock, and at what is due.
const BATCH: usize = 64;
/// The queues that the slow walk makes due each second, which costs less than a millisecond.
const WALKED: usize = 100;

/// Starts the search if something has changed since the last look.
pub(super) fn refresh(host: &mut impl Host, have_slots_changed: bool) {
    let is_down = host.is_cluster_down();
    let moved = &mut host.state().schedule.moved;
    let is_down = is_down.unwrap_or(moved.is_cluster_down);
    let has_state_changed = std::mem::replace(&mut moved.is_cluster_down, is_down) != is_down;
    if have_slots_changed || has_state_changed {
        moved.is_searching = true;
        moved.searched = None;
    }
}

/// Makes the next queues due, wherever their slots are.
pub(super) fn walk(process: &mut impl Process, now: Instant) {
    let state = process.state();
    let walked = state.schedule.moved.walked.take();
    let table = &mut state.server.wait_table;
    state.schedule.moved.walked = table.schedule_next(walked, WALKED, now, |_| true);
    wait_timer::arm(process);
}

/// Searches a slice of the queues. Returns whether there are more.
pub(super) fn search(process: &mut impl Process, pass: &Pass) -> bool {
    let slice = pass.slice(SLICE_MS, process);
    while process.state().schedule.moved.is_searching {
        let now = process.now();
        if process.state().is_due(now) || slice.is_over(process) {
            return true;
        }
        search_batch(process, now);
    }
    false
}

fn search_batch(process: &mut impl Process, now: Instant) {
    let state = process.state();
    let (server, moved) = (&mut state.server, &mut state.schedule.moved);
    let slots = server.cluster.as_ref().map(|cluster| &cluster.slots);
    let is_elsewhere = |name: &LockName| slots.is_none_or(|slots| !slots.serves(slot_of(&name.key)));
    let is_due = |name: &LockName| moved.is_cluster_down || is_elsewhere(name);
    let searched = server
        .wait_table
        .schedule_next(moved.searched.take(), BATCH, now, is_due);
    moved.is_searching = searched.is_some();
    moved.searched = searched;
}
