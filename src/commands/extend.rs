use dlock_core::engine::{Cause, Error, decide, held_back};

use crate::commands::CATEGORY;
use crate::host::config;
use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata};

/// DLOCK.EXTEND: see [`dlock_core::Extend::SYNTAX`].
///
/// Replies what now remains of the lease, in milliseconds.
pub struct Extend;

impl Command for Extend {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.extend",
        flags: c"write fast",
        arity: -4,
        summary: c"Extends the lease of a holder. Never shortens it, never revives an expired one.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"lease-ms"),
            Argument::optional_one_of(
                c"grant",
                &[
                    Argument::integer(c"fence").token(c"FENCE"),
                    Argument::string(c"id").token(c"REQID"),
                ],
            ),
            Argument::integer(c"fence")
                .token(c"MINFENCE")
                .optional()
                .shown_if(config::is_quorum),
        ],
        categories: "write fast",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let request = dlock_core::Extend::parse(call.options(), config::max_lease_ms())?;
        let (key, flags) = (call.arg(1)?, call.ctx.flags());
        if !flags.can_block() {
            held_back::check_told_at_once(&mut call.ctx)?;
        }
        let extended = decide(&mut call.ctx, key, flags.into(), Cause::Client, |transition| {
            let lease_ms = transition.extend(&request)?;
            Ok((!transition.is_held_back()).then_some(lease_ms))
        })?;
        // Otherwise its client is blocked.
        if let Some(lease_ms) = extended {
            call.ctx.reply_integer(lease_ms);
        }
        Ok(())
    }
}
