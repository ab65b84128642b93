use dlock_core::Acquired;

use crate::background::due;
use crate::background::rollback;
use crate::change::blocked_clients;
use crate::change::txn::Txn;
use crate::redis::{Argument, BlockedClient, Call, CallingUser, Command, Ctx, Flags, KeyUse, Metadata};
use crate::state::config;
use crate::state::error::Error;
use crate::state::wait_timer;

/// DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id] [MINFENCE fence]
///
/// Replies `[fence, holds, lease-ms, waited-ms]`, or a null array when it was not granted. With BLOCK the
/// client waits in the queue of the lock until it is granted, or until the timeout; 0 = without limit.
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
            Argument::integer(c"timeout-ms").token(c"BLOCK").optional(),
            Argument::string(c"id").token(c"REQID").optional(),
            Argument::integer(c"fence").token(c"MINFENCE").optional(),
        ],
        categories: "write fast blocking",
        is_public: true,
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        let mut request = dlock_core::Acquire::parse(call.options(), config::max_lease_ms())?;
        let (key, flags) = (call.arg(1)?, call.ctx.flags());
        if !flags.can_block() {
            request.block = None;
        }
        let is_up_to_date = process_due_first(&mut call.ctx, flags, &request);
        let mut txn = Txn::client(&mut call.ctx, key, flags)?;
        let outcome = txn.acquire(&request, is_up_to_date);
        if let Ok(Acquired::Queued(waiter)) = &outcome {
            // Before the commit, whose keyspace events may make other modules run commands that grant this waiter.
            if waiter.replaced {
                blocked_clients::replace(txn.gil(), waiter.ticket);
            }
            let client = BlockedClient::block(txn.ctx());
            blocked_clients::park(txn.gil(), client, waiter, &request);
        }
        let outcome = txn.commit(outcome);
        match outcome.map_err(|error| hide_locks(&mut call.ctx, error))? {
            Acquired::Granted(granted) => call.ctx.reply_grant(&granted),
            Acquired::NotGranted => call.ctx.reply_null_array(),
            Acquired::Queued(_) => {}
        }
        rollback::cancel_rollback(&mut call.ctx, key.bytes(), &request);
        Ok(())
    }
}

/// The longest key that is shown to a caller. The server copies a key to check the rights to it.
const MAX_SHOWN_KEY_BYTES: usize = 64 * 1024;

/// A deadlock may go through locks of which the caller must not know.
fn hide_locks(ctx: &mut Ctx<'_>, mut error: Error) -> Error {
    if let Error::Rejected(dlock_core::Error::Deadlock(cycle)) = &mut error {
        let user = CallingUser::of(ctx);
        cycle.retain_locks(|lock| {
            lock.key.len() <= MAX_SHOWN_KEY_BYTES && user.may_read(ctx, lock.db, &lock.key)
        });
    }
    error
}

/// What is due elsewhere comes first. An expired lease could look like part of a deadlock; and a grant that is to be
/// rolled back may not be found again by the request that it was for. Returns whether a search for deadlocks may follow.
fn process_due_first(ctx: &mut Ctx<'_>, flags: Flags, request: &dlock_core::Acquire<'_>) -> bool {
    let may_block = request.block.is_some();
    let detects_deadlocks = config::wait_policy().detect_deadlocks;
    let state = ctx.state();
    if flags.is_cluster() {
        // Newer servers open every key in the slot of the running command: the timer does it.
        wait_timer::arm(ctx);
    } else if may_block && detects_deadlocks && state.engine.wait_table.involves(request.owner) {
        return due::process_all_due(ctx);
    } else if may_block || !state.grants_to_roll_back.is_empty() {
        due::process_due(ctx);
    }
    true
}
