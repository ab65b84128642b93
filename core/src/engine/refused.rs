//! While nothing can be written, one queue tries for all others: these cost nothing, however many they are, and none stands
//! before a waiter that times out.

use super::gate::RETRY_MS;
use super::host::Process;
use crate::names::LockName;
use crate::time::Instant;

/// This queue cannot be served now, nor any other: it is due when a waiter times out, or when [`end`] says so.
pub(super) fn suspend(process: &mut impl Process, name: &LockName) {
    let retry = process.now().after_ms(RETRY_MS);
    let state = process.state();
    state.server.wait_table.suspend(name.as_ref());
    state.schedule.refused_until.get_or_insert(retry);
}

/// Makes one queue due, if it is time to try again.
pub(super) fn retry(process: &mut impl Process, now: Instant) {
    let state = process.state();
    if state.schedule.refused_until.is_some_and(|at| at <= now) {
        state.schedule.refused_until = Some(now.after_ms(RETRY_MS));
        state.server.wait_table.schedule_next(None, 1, now, |_| true);
    }
}

/// Something can be written again: all queues become due, a batch at a time.
pub(super) fn end(process: &mut impl Process) {
    let state = process.state();
    if state.schedule.refused_until.take().is_some() {
        state.server.wait_table.schedule_all();
    }
}
