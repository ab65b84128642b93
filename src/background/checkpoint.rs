//! Checkpoints: fence counter and grace period, which belong to no lock, for replicas and the AOF. Servers without
//! `aux_save2` have them neither in their snapshots nor in a rewritten AOF.

use std::ffi::CStr;

use dlock_core::Instant;

use crate::redis::Ctx;
use crate::state::module_state::HasState;

/// The keyword of a checkpoint whose grace period ends after that time, also where another one said later.
pub const AT_MOST: &CStr = c"ATMOST";

/// The interval of checkpoints during a grace period.
const INTERVAL_MS: u64 = 1_000;

/// Sends a checkpoint: once a second during a grace period, and when one was requested.
pub fn send_if_due(ctx: &mut Ctx<'_>, now: Instant) {
    let state = ctx.state();
    let is_periodic = state.schedule.next_checkpoint <= now;
    if let Some(checkpoint) = state.server.due_checkpoint(is_periodic, now) {
        state.schedule.next_checkpoint = now.after_ms(INTERVAL_MS);
        let (fence, grace_left_ms) = (checkpoint.fence, checkpoint.grace_left_ms);
        let keyword = state.server.take_grace_end().then_some(AT_MOST);
        // A log that has the grace period also needs its end.
        let is_logged = state.keeps_fence() || keyword.is_some();
        ctx.replicate_numbers(c"DLOCK.SYNC", [fence, grace_left_ms], keyword, is_logged);
    }
}
