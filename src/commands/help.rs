use dlock_core::engine::Error;

use crate::commands::{Acquire, CATEGORY, Extend, Grants, Guard, Info, Owner, Release};
use crate::redis::{Command, Invocation, Metadata};

/// DLOCK.HELP
///
/// Replies what the HELP subcommands of the server reply: the syntax and the summary of each command for clients.
pub struct Help;

/// The syntax and the summary of each command.
const COMMANDS: [(&str, &Metadata); 8] = [
    (dlock_core::Acquire::SYNTAX, &Acquire::METADATA),
    (dlock_core::Release::SYNTAX, &Release::METADATA),
    (dlock_core::Extend::SYNTAX, &Extend::METADATA),
    (dlock_core::Guard::SYNTAX, &Guard::METADATA),
    (dlock_core::Grants::SYNTAX, &Grants::METADATA),
    ("DLOCK.OWNER key", &Owner::METADATA),
    ("DLOCK.INFO key", &Info::METADATA),
    ("DLOCK.HELP", &Help::METADATA),
];

impl Command for Help {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.help",
        flags: c"readonly fast allow-loading allow-stale",
        arity: 1,
        summary: c"Returns the syntax and a summary of each command of the module.",
        complexity: c"O(1)",
        key: None,
        arguments: &[],
        categories: "read fast",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        call.ctx.reply_array(COMMANDS.len().saturating_mul(2));
        for (syntax, metadata) in COMMANDS {
            call.ctx.reply_status(syntax);
            call.ctx
                .reply_status(&format!("    {}", metadata.summary.to_string_lossy()));
        }
        Ok(())
    }
}
