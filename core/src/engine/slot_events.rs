//! What the engine does when the server moves slots of a cluster atomically, or forgets those that have left.

use super::host::Process;
use super::scheduler;
use crate::cluster::nodes::LocalSlots;
use crate::cluster::slots::SlotSet;

/// An atomic migration of slots to another node begins. The snapshot of the slots is taken later, and that node gets all
/// that comes after it.
pub fn slots_leave(process: &mut impl Process) {
    let exports = &mut process.state().replication_targets.exports;
    *exports = exports.saturating_add(1);
    scheduler::refresh_soon(process);
}

/// The slots have left, or stay. When they have left, their waiters are redirected.
pub fn slots_have_left(process: &mut impl Process) {
    let exports = &mut process.state().replication_targets.exports;
    *exports = exports.saturating_sub(1);
    scheduler::refresh_soon(process);
}

/// Slots come from another node, have come, or do not. Until the next look they may seem to be here, if they were a moment
/// ago.
pub fn slots_come(process: &mut impl Process) {
    process.state().server.cluster().0.slots = LocalSlots::default();
    scheduler::refresh_soon(process);
}

/// The server has removed the keys of slots that have left, and told nobody of each value.
pub fn slots_trimmed(process: &mut impl Process, slots: &SlotSet) {
    process.state().expiry.remove_slots(slots);
    scheduler::refresh_soon(process);
}
