//! DLOCK.SYNC: fence counter and grace, which belong to no lock. Servers without `aux_save2` have them neither in their
//! snapshots nor in a rewritten log.

use dlock_core::{Instant, MAX_FENCE};

use crate::module::config;
use crate::redis::{Argument, Call, Command, Ctx, Metadata, clock};
use crate::reply::Error;

/// The interval of checkpoints during a grace.
const INTERVAL_MS: u64 = 1_000;

/// Sends a checkpoint to replicas and the log: once a second during a grace, and when one was requested.
pub fn send_if_due(ctx: &mut Ctx<'_>, now: Instant) {
    let state = ctx.state();
    let (fence, grace_left_ms) = (state.fences.known(), state.grace.left_ms(now));
    let schedule = &mut state.schedule;
    let is_due = schedule.checkpoint_due || (grace_left_ms > 0 && schedule.next_checkpoint <= now);
    if !is_due {
        return;
    }
    schedule.checkpoint_due = false;
    schedule.next_checkpoint = now.after_ms(INTERVAL_MS);
    if fence > 0 || grace_left_ms > 0 {
        ctx.replicate_numbers(c"DLOCK.SYNC", fence, grace_left_ms);
    }
}

/// DLOCK.SYNC fence grace-left-ms
///
/// Internal: what a primary knows besides its locks, for its replicas and the log.
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
        let fence = number(call, 1, "fence", MAX_FENCE)?;
        let grace_left_ms = number(call, 2, "grace-left-ms", config::MAX_MS.unsigned_abs())?;
        let now = clock::now();
        let state = call.ctx.state();
        state.fences.observe(fence);
        state.grace.observe(grace_left_ms, now);
        call.ctx.replicate_verbatim();
        call.ctx.reply_ok();
        Ok(())
    }
}

fn number(call: &Call<'_>, position: usize, what: &'static str, max: u64) -> Result<u64, Error> {
    let text = call.arg(position)?.bytes();
    Ok(dlock_core::number(what, text, 0, max)?)
}
