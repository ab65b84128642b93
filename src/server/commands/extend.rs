use crate::lock::extend;
use crate::server::change::Change;
use crate::server::command::{Call, Command, Failure};
use crate::server::metadata::{Argument, CATEGORY, KeyUse, Metadata};
use crate::server::{config, state};

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
        category: Some(CATEGORY),
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let request = crate::lock::Extend::parse(call.options(), config::max_lease_ms())?;
        let change = Change::asked(call.ctx, call.key()?, call.ctx.flags())?;
        change.run(
            |stored, effects| extend(&mut stored.lock, &request, change.moment(), effects),
            |lease_ms, _| {
                state::with(|state| state.grace.learn_lease(request.lease_ms));
                call.ctx.reply_integer(lease_ms);
            },
        )
    }
}
