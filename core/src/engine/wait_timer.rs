//! The timer for what is due in the queues and inboxes.
//!
//! Callbacks only schedule: they note in the wait table when a queue is due, and arm the timer. A grant that is
//! replicated from inside a DEL callback would precede that DEL in the AOF.

use super::host::Process;

/// The server's timers go by the wall clock, which may jump: none is set further ahead.
const MAX_PERIOD_MS: u64 = 60_000;

/// Sets the timer to the first time at which something is due, unless it fires earlier anyway.
pub fn arm(process: &mut impl Process) {
    let state = process.state();
    let Some(at) = state.next_wakeup() else {
        return;
    };
    let schedule = &mut state.schedule;
    let at = at.max(schedule.next_pass);
    if schedule.wait_timer.is_some_and(|fires| fires <= at) {
        return;
    }
    schedule.wait_timer = Some(at);
    let period_ms = process.now().ms_until_rounded_up(at).min(MAX_PERIOD_MS);
    process.set_wait_timer(period_ms);
}
