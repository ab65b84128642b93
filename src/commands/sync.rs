use dlock_core::engine::{Error, MAX_MS, checkpoint};
use dlock_core::{Checkpoint, MAX_FENCE};

use crate::host::AT_MOST;
use crate::redis::{Argument, Command, Invocation, Metadata};

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
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let received = Checkpoint {
            fence: number(call, 1, "fence", MAX_FENCE)?,
            grace_left_ms: number(call, 2, "grace-left-ms", MAX_MS)?,
        };
        let ends_grace = call.arg(3).is_ok_and(|word| word.bytes() == AT_MOST.to_bytes());
        let flags = call.ctx.flags();
        checkpoint::apply(&mut call.ctx, flags.into(), received, ends_grace)?;
        call.ctx.reply_ok();
        Ok(())
    }
}

fn number(call: &Invocation<'_>, position: usize, what: &'static str, max: u64) -> Result<u64, Error> {
    let text = call.arg(position)?.bytes();
    Ok(dlock_core::number(what, text, 0, max)?)
}
