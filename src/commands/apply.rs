use crate::commands::entry::{Call, Command, Failure};
use crate::module::state;
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::txn::Change;
use dlock_core::apply;

/// DLOCK.APPLY key change
///
/// Internal: the outcome of a step, from the primary to its replicas and the log.
pub struct Apply;

impl Command for Apply {
    const METADATA: Metadata = Metadata {
        name: c"dlock.apply",
        flags: c"write admin",
        arity: 3,
        summary: c"Internal: carries a change of a lock to replicas and the append-only file.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[Argument::key(c"key"), Argument::string(c"change")],
        categories: "write slow admin dangerous",
        is_public: false,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let bytes = call.text(2)?.bytes();
        let change = Change::told(call.ctx, call.key()?, call.ctx.flags())?;
        let now = change.moment().now;
        change.run(
            |stored, effects| {
                state::with(|state| {
                    apply(&mut stored.lock, bytes, now, &mut state.fences, effects)?;
                    let longest = stored
                        .lock
                        .holders()
                        .iter()
                        .map(|holder| change.moment().lease_ms(holder))
                        .max();
                    state.grace.observe_lease(longest.unwrap_or(0));
                    Ok::<_, Failure>(())
                })
            },
            |(), _| call.ctx.reply_ok(),
        );
        Ok(())
    }
}
