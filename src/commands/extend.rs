use crate::commands::entry::{Call, Command, Failure};
use crate::module::config;
use crate::module::state;
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::txn::Change;
use dlock_core::extend;

/// DLOCK.EXTEND key owner lease-ms [FENCE fence]
///
/// Replies what now remains of the lease, in milliseconds.
pub struct Extend;

impl Command for Extend {
    const METADATA: Metadata = Metadata {
        name: c"dlock.extend",
        flags: c"write fast",
        arity: -4,
        summary: c"Prolongs the lease of a holder. Never shortens it, never revives one that ended.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"lease-ms"),
            Argument::integer(c"fence").after(c"FENCE").optional(),
        ],
        categories: "write fast",
        is_public: true,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let request = dlock_core::Extend::parse(call.options(), config::max_lease_ms())?;
        let key = call.key()?;
        let change = Change::asked(call.ctx, key, call.ctx.flags())?;
        let db = call.ctx.db();
        change.run(
            |stored, effects| {
                state::with(|state| {
                    let moment = change.moment();
                    state.grace.observe_lease(request.lease_ms);
                    state.step(
                        db,
                        key.bytes(),
                        &mut stored.lock,
                        moment,
                        |lock, queue, fences| Ok(extend(lock, queue, &request, moment, fences, effects)?),
                    )
                })
            },
            |lease_ms, _| call.ctx.reply_integer(lease_ms),
        );
        Ok(())
    }
}
