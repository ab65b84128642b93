//! Queues in cluster slots that have left this node, and all queues while the cluster is down: they become due, so that
//! their waiters are told.
//!
//! The server does not say that a slot has left. Once a second its slots are compared with those at the last look. Only
//! after a change are all queues looked at, a slice at a time, after those that are due, and only those whose slot is not
//! here become due. What that does not show, a slow walk over all queues finds.

use dlock_core::cluster::slots::slot_of;
use dlock_core::{Instant, LockName};

use crate::background::pass::Pass;
use crate::redis::{Ctx, Gil};
use crate::state::clock;
use crate::state::cluster::location::is_down;
use crate::state::module_state::HasState;
use crate::state::wait_timer;

const SLICE_MS: u64 = 1;
/// The queues between two looks at the clock, and at what is due.
const BATCH: usize = 64;
/// The queues that the slow walk makes due each second, which costs less than a millisecond.
const WALKED: usize = 100;

/// Starts the search if something has changed since the last look.
pub fn refresh(ctx: &mut Ctx<'_>, have_slots_changed: bool) {
    let is_down = is_down(ctx);
    let moved = &mut ctx.state().schedule.moved;
    let is_down = is_down.unwrap_or(moved.is_cluster_down);
    let has_state_changed = std::mem::replace(&mut moved.is_cluster_down, is_down) != is_down;
    if have_slots_changed || has_state_changed {
        moved.is_searching = true;
        moved.searched = None;
    }
}

/// Makes the next queues due, wherever their slots are.
pub fn walk(gil: &mut Gil<'_>, now: Instant) {
    let state = gil.state();
    let walked = state.schedule.moved.walked.take();
    let table = &mut state.server.wait_table;
    state.schedule.moved.walked = table.schedule_next(walked, WALKED, now, |_| true);
    wait_timer::arm(gil);
}

/// Searches a slice of the queues. Returns whether there are more.
pub fn search(gil: &mut Gil<'_>, pass: &Pass) -> bool {
    let slice = pass.slice(SLICE_MS);
    while gil.state().schedule.moved.is_searching {
        let now = clock::now();
        if gil.state().is_due(now) || slice.is_over() {
            return true;
        }
        search_batch(gil, now);
    }
    false
}

fn search_batch(gil: &mut Gil<'_>, now: Instant) {
    let state = gil.state();
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
