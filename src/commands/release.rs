use crate::commands::entry::{Call, Command, Failure};
use crate::module::state;
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::txn::Change;
use dlock_core::{apply_release, release};

/// DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]
///
/// Replies how many holds the owner has left; 0 = it has given the lock up.
pub struct Release;

impl Command for Release {
    const METADATA: Metadata = Metadata {
        name: c"dlock.release",
        flags: c"write fast",
        arity: -3,
        summary: c"Gives back one hold of a lock, or all, or the one that a request made.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"fence").after(c"FENCE").optional(),
            Argument::optional_one_of(
                c"which",
                &[
                    Argument::flag(c"all", c"ALL"),
                    Argument::string(c"id").after(c"REQID"),
                ],
            ),
        ],
        categories: "write fast",
        is_public: true,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let request = dlock_core::Release::parse(call.options())?;
        let (key, flags) = (call.key()?, call.ctx.flags());
        let reply = |left, _: &_| call.ctx.reply_integer(left);
        if flags.is_told() {
            let change = Change::told(call.ctx, key, flags)?;
            change.run(
                |stored, effects| Ok(apply_release(&mut stored.lock, &request, effects)?),
                reply,
            );
            return Ok(());
        }
        let change = Change::asked(call.ctx, key, flags)?;
        let db = call.ctx.db();
        change.run(
            |stored, effects| {
                state::with(|state| {
                    let moment = change.moment();
                    let lock = &mut stored.lock;
                    let outcome = state.step(db, key.bytes(), lock, moment, |lock, queue, fences| {
                        release(lock, queue, &request, moment, fences, effects)
                    });
                    if let Err(refusal) = &outcome {
                        state.counters.release_refused(refusal);
                    }
                    Ok(outcome?)
                })
            },
            reply,
        );
        Ok(())
    }
}
