use crate::lock::{Effects, Event, Granted, Replication, acquire};
use crate::server::change::Change;
use crate::server::command::{Call, Command, Failure};
use crate::server::counters::add;
use crate::server::ctx::{Flags, Text};
use crate::server::metadata::{Argument, CATEGORY, KeyUse, Metadata};
use crate::server::{config, ctx, slots, state};

/// DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [REQID id]
///
/// Replies `[fence, holds, lease-ms, waited-ms]`, or a null array when it was not granted.
pub struct Acquire;

impl Command for Acquire {
    const METADATA: Metadata = Metadata {
        name: c"dlock.acquire",
        flags: c"write deny-oom fast",
        arity: -4,
        summary: c"Acquires a lock for an owner, or one more hold for an owner that holds it already.",
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
                    Argument::integer(c"n").after(c"LIMIT"),
                ],
            ),
            Argument::string(c"id").after(c"REQID").optional(),
        ],
        category: Some(CATEGORY),
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let request = crate::lock::Acquire::parse(call.options(), config::max_lease_ms())?;
        let (key, flags) = (call.key()?, call.ctx.flags());
        let change = Change::asked(call.ctx, key, flags)?;
        raise_fences(flags, key);
        change.run(
            |stored, effects| {
                state::with(|state| {
                    let lock = &mut stored.lock;
                    let granted = acquire(lock, &request, change.moment(), &mut state.fences, effects)?;
                    state.grace.learn_lease(request.lease_ms);
                    Ok::<_, Failure>(granted)
                })
            },
            |granted, effects| {
                count(granted, effects);
                match granted {
                    Some(granted) => reply(call, granted),
                    None => call.ctx.reply_null_array(),
                }
            },
        )
    }
}

/// After a start or a promotion, and when a cluster slot came here, the counter is raised before the first
/// grant, which then carries it to replicas and the log.
fn raise_fences(flags: Flags, key: Text<'_>) {
    if flags.is_cluster() {
        slots::demand_raise(key.bytes());
    }
    if state::with(|state| state.fences.wants_raise()) {
        let (clock, random) = (ctx::wall_clock(), rand::random());
        state::with(|state| state.fences.raise(clock, random));
    }
}

fn count(granted: Option<Granted>, effects: &Effects) {
    let first = effects.events.contains(&Event::Acquired);
    let repeated = effects.replication == Replication::Nothing;
    state::with(|state| match granted {
        None => add(&mut state.counters.not_granted),
        Some(_) if !first && !repeated => add(&mut state.counters.reentered),
        Some(_) => {}
    });
}

fn reply(call: &Call<'_>, granted: Granted) {
    const WAITED_MS: u64 = 0;
    call.ctx.reply_array(4);
    for number in [granted.fence, granted.holds, granted.lease_ms, WAITED_MS] {
        call.ctx.reply_integer(number);
    }
}
