use crate::commands::entry::{Call, Command, Failure};
use crate::module::config;
use crate::module::state;
use crate::redis::command_info::{Argument, Metadata};
use crate::redis::ctx;
use dlock_core::MAX_FENCE;

/// DLOCK.SYNC fence grace-left-ms
///
/// Internal: what a primary knows beside its locks, for its replicas and the log.
pub struct Sync;

impl Command for Sync {
    const METADATA: Metadata = Metadata {
        name: c"dlock.sync",
        flags: c"write admin",
        arity: 3,
        summary: c"Internal: carries fence counter and grace to replicas and the append-only file.",
        complexity: c"O(1)",
        key: None,
        arguments: &[Argument::integer(c"fence"), Argument::integer(c"grace-left-ms")],
        categories: "write slow admin dangerous",
        is_public: false,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        if !call.ctx.flags().is_told() {
            return Err(Failure::Internal);
        }
        let fence = number(call, 1, "fence", MAX_FENCE)?;
        let grace_left_ms = number(call, 2, "grace-left-ms", config::LONGEST_MS.unsigned_abs())?;
        let now = ctx::now();
        state::with(|state| {
            state.fences.observe(fence);
            state.grace.observe(grace_left_ms, now);
        });
        call.ctx.replicate_verbatim();
        call.ctx.reply_ok();
        Ok(())
    }
}

fn number(call: &Call<'_>, position: usize, what: &'static str, max: u64) -> Result<u64, Failure> {
    let text = call.text(position)?.bytes();
    Ok(dlock_core::number(what, text, 0, max)?)
}
