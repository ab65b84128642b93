use dlock_core::engine::Error;

use crate::host::PROBE;
use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata};

/// DLOCK.PROBE [key ...]
///
/// Internal: does nothing. The gate of grants and GUARD call this write command, and so learn from the server whether a
/// client could write to the keys now; the creation of an inbox, whether memory may grow.
pub struct Probe;

impl Command for Probe {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: PROBE,
        flags: c"write deny-oom fast",
        arity: -1,
        summary: c"Internal: does nothing; checks whether the server accepts a write to the keys.",
        complexity: c"O(1)",
        key: Some(KeyUse::UpdateAll),
        arguments: &[Argument::key(c"key").multiple().optional()],
        categories: "write fast",
        own_category: None,
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        call.ctx.reply_ok();
        Ok(())
    }
}
