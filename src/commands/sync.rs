use dlock_core::{Checkpoint, MAX_FENCE};

use crate::background::checkpoint::AT_MOST;
use crate::redis::{Argument, Call, Command, Metadata};
use crate::state::error::Error;
use crate::state::module_state::HasState;
use crate::state::{clock, config};

/// DLOCK.SYNC fence grace-left-ms \[ATMOST\]
///
/// Internal: what a primary knows besides its locks, for its replicas and the AOF. ATMOST: what is left of the grace
/// period is no more than that.
pub struct CheckpointCommand;

impl Command for CheckpointCommand {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.sync",
        flags: c"write admin",
        arity: -3,
        summary: c"Internal: propagates the fence counter and the grace period to replicas and the append-only file.",
        complexity: c"O(1)",
        key: None,
        arguments: &[
            Argument::integer(c"fence"),
            Argument::integer(c"grace-left-ms"),
            Argument::flag(c"at-most", AT_MOST).optional(),
        ],
        categories: "write slow admin dangerous",
        own_category: None,
        since: c"0.1.0",
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        if !call.ctx.flags().must_obey() {
            return Err(Error::Internal);
        }
        let checkpoint = Checkpoint {
            fence: number(call, 1, "fence", MAX_FENCE)?,
            grace_left_ms: number(call, 2, "grace-left-ms", config::MAX_MS.unsigned_abs())?,
        };
        let is_shortened = call.arg(3).is_ok_and(|word| word.bytes() == AT_MOST.to_bytes());
        let now = clock::now();
        let state = call.ctx.state();
        // A log that has the grace period also needs its end.
        let kept_fence = state.keeps_fence();
        state.server.apply_checkpoint(checkpoint, now);
        if is_shortened {
            state.expiry.expire_early(state.server.grace.end());
            state.server.grace.end_within(checkpoint.grace_left_ms, now);
        }
        // Replicas of a replica get it in any case.
        if kept_fence || state.keeps_fence() {
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
