//! Checkpoints: fence counter and grace period, which belong to no lock, for replicas and the AOF. Servers without
//! `aux_save2` have them neither in their snapshots nor in a rewritten AOF.

use super::error::Error;
use super::host::{Flags, Host};
use crate::time::Instant;
use crate::transition::Checkpoint;

/// The interval of checkpoints during a grace period.
const INTERVAL_MS: u64 = 1_000;

/// Sends a checkpoint: once a second during a grace period, and when one was requested.
pub(super) fn send_if_due(host: &mut impl Host, now: Instant) {
    let environment = host.environment();
    let state = host.state();
    let is_periodic = state.schedule.next_checkpoint <= now;
    if let Some(checkpoint) = state.server.due_checkpoint(is_periodic, now) {
        state.schedule.next_checkpoint = now.after_ms(INTERVAL_MS);
        let ends_grace = state.server.take_grace_end();
        // A log that has the grace period also needs its end.
        let is_logged = state.keeps_fence(now, &environment) || ends_grace;
        host.replicate_checkpoint(checkpoint, ends_grace, is_logged);
    }
}

/// Applies a checkpoint from the primary or the append-only file: see [`Host::replicate_checkpoint`].
pub fn apply<H: Host>(
    host: &mut H,
    flags: Flags,
    checkpoint: Checkpoint,
    ends_grace: bool,
) -> Result<(), Error> {
    if !flags.must_obey {
        return Err(Error::Internal);
    }
    let (now, environment) = (host.now(), host.environment());
    let state = host.state();
    // A log that has the grace period also needs its end.
    let kept_fence = state.keeps_fence(now, &environment);
    state.server.apply_checkpoint(checkpoint, now);
    if ends_grace {
        state.expiry.expire_early(state.server.grace.end());
        state.server.grace.end_within(checkpoint.grace_left_ms, now);
    }
    // Replicas of a replica get it in any case.
    if kept_fence || state.keeps_fence(now, &environment) {
        host.replicate_verbatim();
    }
    Ok(())
}
