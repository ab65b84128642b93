//! Checkpoints: fence counter and grace period, which belong to no lock, for replicas and the AOF. Servers without
//! `aux_save2` have them neither in their snapshots nor in a rewritten AOF.

use dlock_core::Instant;

use crate::redis::Ctx;
use crate::state::module_state::HasState;

/// The interval of checkpoints during a grace period.
const INTERVAL_MS: u64 = 1_000;

/// Sends a checkpoint: once a second during a grace period, and when one was requested.
pub fn send_if_due(ctx: &mut Ctx<'_>, now: Instant) {
    let state = ctx.state();
    let is_periodic = state.schedule.next_checkpoint <= now;
    if let Some(checkpoint) = state.server.due_checkpoint(is_periodic, now) {
        state.schedule.next_checkpoint = now.after_ms(INTERVAL_MS);
        let (fence, grace_left_ms) = (checkpoint.fence, checkpoint.grace_left_ms);
        let is_logged = state.keeps_fence();
        ctx.replicate_numbers(c"DLOCK.SYNC", fence, grace_left_ms, is_logged);
    }
}
