//! The timer for what is due in the queues and inboxes.
//!
//! Callbacks only schedule: they note in the wait table when a queue is due, and arm the timer. A grant that is
//! replicated from inside a DEL callback would precede that DEL in the AOF.

use crate::redis::{Gil, Timer};
use crate::state::clock;
use crate::state::module_state::HasState;

/// The server's timers go by the wall clock, which may jump: none is set further ahead.
const MAX_PERIOD_MS: u64 = 60_000;

/// Sets the timer to the first time at which something is due, unless it fires earlier anyway.
pub fn arm(gil: &mut Gil<'_>) {
    let state = gil.state();
    let Some(at) = state.next_wakeup() else {
        return;
    };
    let schedule = &mut state.schedule;
    let at = at.max(schedule.next_pass);
    if schedule
        .wait_timer
        .as_ref()
        .is_some_and(|(_, fires)| *fires <= at)
    {
        return;
    }
    let Some(callback) = schedule.on_wait_timer else {
        return;
    };
    if let Some((old, _)) = schedule.wait_timer.take() {
        old.stop(gil);
    }
    let period_ms = clock::now().ms_until_rounded_up(at).min(MAX_PERIOD_MS);
    let timer = Timer::set(gil, period_ms, callback);
    gil.state().schedule.wait_timer = Some((timer, at));
}
