use dlock_core::Acquired;
use dlock_core::engine::{self, Error, held_back};

use crate::commands::CATEGORY;
use crate::host::config;
use crate::host::reply::reply_grant;
use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata};

/// DLOCK.ACQUIRE: see [`dlock_core::Acquire::SYNTAX`].
///
/// Replies `[fence, holds, lease-ms, waited-ms]`, or a null array when it was not granted. With BLOCK the
/// client waits in the queue of the lock until it is granted, or until the timeout; 0 = without limit. With QUEUE the
/// request waits there without its client, and the reply is `[waiting]`: how many wait before it.
pub struct Acquire;

impl Command for Acquire {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.acquire",
        flags: c"write deny-oom fast blocking",
        arity: -4,
        summary: c"Acquires a lock for an owner, or re-enters a lock that the owner already holds.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"lease-ms"),
            Argument::optional_one_of(
                c"limit",
                &[
                    Argument::flag(c"shared", c"SHARED"),
                    Argument::integer(c"n").token(c"LIMIT"),
                ],
            ),
            Argument::optional_one_of(
                c"wait",
                &[
                    Argument::integer(c"timeout-ms").token(c"BLOCK"),
                    Argument::block(
                        c"queue",
                        &[Argument::string(c"inbox"), Argument::integer(c"timeout-ms")],
                    )
                    .token(c"QUEUE"),
                ],
            ),
            Argument::string(c"id").token(c"REQID").optional(),
            Argument::integer(c"fence")
                .token(c"MINFENCE")
                .optional()
                .shown_if(config::is_quorum),
        ],
        categories: "write fast blocking",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let mut request = dlock_core::Acquire::parse(call.options(), config::max_lease_ms())?;
        let (key, flags) = (call.arg(1)?, call.ctx.flags());
        let is_queued = request.wait.is_some_and(|wait| wait.inbox.is_some());
        if !is_queued && !flags.can_block() {
            request.wait = None;
            held_back::check_told_at_once(&mut call.ctx)?;
        }
        let user = if is_queued { call.ctx.user() } else { Vec::new() };
        match engine::acquire(&mut call.ctx, key, flags.into(), &user, &request)? {
            Acquired::Granted(granted) => reply_grant(&call.ctx, &granted),
            Acquired::NotGranted => call.ctx.reply_null_array(),
            Acquired::Queued(ahead) if is_queued => {
                call.ctx.reply_array(1);
                call.ctx.reply_integer(ahead as u64);
            }
            // Its client is blocked.
            Acquired::Queued(_) => {}
        }
        Ok(())
    }
}
