use crate::commands::entry::{Call, Command, Failure};
use crate::redis::command_info::{Argument, KeyUse, Metadata};

/// DLOCK.PROBE key
///
/// Internal: does nothing. Before the module grants a lock from a timer it calls this write command, and so
/// learns from the server whether a client could write to the key now.
pub struct Probe;

impl Command for Probe {
    const METADATA: Metadata = Metadata {
        name: c"dlock.probe",
        flags: c"write fast",
        arity: 2,
        summary: c"Internal: does nothing; asks the server whether a key can be written to.",
        complexity: c"O(1)",
        key: Some(KeyUse::Update),
        arguments: &[Argument::key(c"key")],
        categories: "write fast",
        is_public: false,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        call.ctx.reply_ok();
        Ok(())
    }
}
