//! DLOCK.SYNC: fence counter and grace period, which belong to no lock. Servers without `aux_save2` have them
//! neither in their snapshots nor in a rewritten AOF.

use dlock_core::{Checkpoint, Instant, MAX_FENCE};

use crate::redis::{Argument, Call, Command, Ctx, Metadata, clock};
use crate::state::config;
use crate::state::error::Error;

/// The interval of checkpoints during a grace period.
const INTERVAL_MS: u64 = 1_000;

/// Sends a checkpoint to replicas and the AOF: once a second during a grace period, and when one was requested.
pub fn send_if_due(ctx: &mut Ctx<'_>, now: Instant) {
    let state = ctx.state();
    let checkpoint = state.engine.checkpoint(now);
    let is_periodic = checkpoint.grace_left_ms > 0 && state.schedule.next_checkpoint <= now;
    if !state.engine.checkpoint_due && !is_periodic {
        return;
    }
    state.engine.checkpoint_due = false;
    state.schedule.next_checkpoint = now.after_ms(INTERVAL_MS);
    if checkpoint != Checkpoint::default() {
        let is_logged = state.keeps_fence();
        if is_logged {
            state.footprint.touch();
        }
        ctx.replicate_numbers(
            c"DLOCK.SYNC",
            checkpoint.fence,
            checkpoint.grace_left_ms,
            is_logged,
        );
    }
}

/// DLOCK.SYNC fence grace-left-ms
///
/// Internal: what a primary knows besides its locks, for its replicas and the AOF.
pub struct Sync;

impl Command for Sync {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.sync",
        flags: c"write admin",
        arity: 3,
        summary: c"Internal: propagates the fence counter and the grace period to replicas and the append-only file.",
        complexity: c"O(1)",
        key: None,
        arguments: &[Argument::integer(c"fence"), Argument::integer(c"grace-left-ms")],
        categories: "write slow admin dangerous",
        is_public: false,
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        if !call.ctx.flags().must_obey() {
            return Err(Error::Internal);
        }
        let checkpoint = Checkpoint {
            fence: number(call, 1, "fence", MAX_FENCE)?,
            grace_left_ms: number(call, 2, "grace-left-ms", config::MAX_MS.unsigned_abs())?,
        };
        let is_loading = call.ctx.flags().is_loading();
        let state = call.ctx.state();
        state.engine.apply_checkpoint(checkpoint, clock::now());
        // Replicas of a replica get it in any case.
        if state.keeps_fence() || is_loading {
            state.footprint.touch();
            call.ctx.replicate_verbatim();
        }
        call.ctx.reply_ok();
        Ok(())
    }
}

fn number(call: &Call<'_>, position: usize, what: &'static str, max: u64) -> Result<u64, Error> {
    let text = call.arg(position)?.bytes();
    Ok(dlock_core::number(what, text, 0, max)?)
}
