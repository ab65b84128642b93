//! Inboxes: calls whose time is over, inboxes that nobody reads any more, and what they leave.

use super::host::{Host, Process};
use super::pass::Pass;
use super::wait_timer;
use crate::inbox::InboxStep;

const SLICE_MS: u64 = 1;
/// The steps between two looks at the clock.
const STEPS: usize = 32;

/// Processes what is due, a slice of it. The grants that it gives up are rolled back with the queues.
pub(super) fn process(host: &mut impl Host, pass: &Pass) {
    let (is_paused, now) = (host.is_paused(), host.now());
    host.state().server.inboxes.look_at_pauses(is_paused, now);
    let slice = pass.slice(SLICE_MS, host);
    while (0..STEPS).all(|_| step(host)) && !slice.is_over(host) {}
    wait_timer::arm(host);
}

/// False if nothing is due any more.
fn step(process: &mut impl Process) -> bool {
    let now = process.now();
    match process.state().server.process_inboxes(now) {
        Some(InboxStep::Reply(call)) => process.wake(call),
        Some(InboxStep::Leave(..) | InboxStep::Done) => {}
        None => return false,
    }
    true
}
