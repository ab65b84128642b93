use crate::commands::entry::{Call, Command, Failure};
use crate::module::cluster;
use crate::module::config;
use crate::module::fences;
use crate::module::state;
use crate::module::stats::add;
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::redis::ctx::{Ctx, Flags, Text};
use crate::txn::Change;
use crate::waiting::blocked_clients;
use crate::waiting::due;
use dlock_core::{Effects, Enqueued, Event, Granted, LockName, Replication, WaitPolicy, acquire};

/// DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id]
///
/// Replies `[fence, holds, lease-ms, waited-ms]`, or a null array when it was not granted. With BLOCK the
/// client waits in the queue of the lock until it is granted, or until the timeout; 0 = without limit.
pub struct Acquire;

impl Command for Acquire {
    const METADATA: Metadata = Metadata {
        name: c"dlock.acquire",
        flags: c"write deny-oom fast blocking",
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
            Argument::integer(c"timeout-ms").after(c"BLOCK").optional(),
            Argument::string(c"id").after(c"REQID").optional(),
        ],
        categories: "write fast blocking",
        is_public: true,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let mut request = dlock_core::Acquire::parse(call.options(), config::max_lease_ms())?;
        let (key, flags) = (call.key()?, call.ctx.flags());
        if !flags.can_block() {
            request.block = None;
        }
        settle_others(call, flags, &request);
        let change = Change::asked(call.ctx, key, flags)?;
        raise_fences(flags, key);
        let db = call.ctx.db();
        let mut refused = true;
        change.run(
            |stored, effects| {
                state::with(|state| {
                    let (lock, moment) = (&mut stored.lock, change.moment());
                    state.grace.observe_lease(request.lease_ms);
                    let granted = state.step(db, key.bytes(), lock, moment, |lock, queue, fences| {
                        acquire(lock, queue, &request, moment, fences, effects)
                    })?;
                    Ok(match (granted, request.block) {
                        (Some(granted), _) => Outcome::Granted(granted),
                        (None, None) => Outcome::NotGranted,
                        (None, Some(timeout)) => {
                            let name = state.waiting.name(db, key.bytes());
                            let name = name.unwrap_or_else(|| LockName::new(db, key.bytes()));
                            let waiting = &mut state.waiting;
                            let enqueued =
                                waiting.enqueue(&name, lock, &request, timeout, moment, rules())?;
                            Outcome::Waits(enqueued, name)
                        }
                    })
                })
            },
            |outcome, effects| {
                refused = false;
                count(&outcome, effects);
                match outcome {
                    Outcome::Granted(granted) => reply_granted(call.ctx, &granted),
                    Outcome::NotGranted => call.ctx.reply_null_array(),
                    Outcome::Waits(Enqueued { ticket, replaced }, name) => {
                        if replaced {
                            blocked_clients::replace(ticket);
                        }
                        blocked_clients::block(call, ticket, name, &request);
                    }
                }
            },
        );
        if !refused {
            keep(call, key, &request);
        }
        Ok(())
    }
}

/// What is due elsewhere comes first. An ended lease could look like part of a deadlock; and a grant that
/// waits to be undone may not be found again by the request that it was for.
fn settle_others(call: &Call<'_>, flags: Flags, request: &dlock_core::Acquire<'_>) {
    let undeliverable = state::with(|state| !state.undeliverable.is_empty());
    if flags.is_cluster() {
        // Newer servers open every key in the slot of the running command: a timer looks instead.
        due::arm();
    } else if request.block.is_some() && state::with(|state| state.waiting.involves(request.owner)) {
        due::ring_all(call.ctx);
    } else if request.block.is_some() || undeliverable {
        due::ring(call.ctx);
    }
}

/// The hold of this name is wanted here, whatever becomes of other clients that asked for it. After the step,
/// which may have granted it to one of them, and before the server can find that client gone.
fn keep(call: &Call<'_>, key: Text<'_>, request: &dlock_core::Acquire<'_>) {
    let Some(id) = request.request_id else { return };
    if state::with(|state| !state.undeliverable.is_empty() || state.clients.any_in_flight()) {
        due::keep(call.ctx.db(), key.bytes(), request.owner, id);
    }
}

enum Outcome {
    Granted(Granted),
    NotGranted,
    Waits(Enqueued, LockName),
}

fn rules() -> WaitPolicy {
    WaitPolicy {
        max_waiters: config::max_waiters_per_lock(),
        detect_deadlocks: config::deadlock_detection(),
    }
}

/// A cluster slot may have come here, or nothing may have ticked since a start or a promotion.
fn raise_fences(flags: Flags, key: Text<'_>) {
    if flags.is_cluster() {
        cluster::demand_raise(key.bytes());
    }
    fences::raise();
}

fn count(outcome: &Outcome, effects: &Effects) {
    let first = effects.events.contains(&Event::Acquired);
    let repeated = effects.replication == Replication::Nothing;
    state::with(|state| match outcome {
        Outcome::NotGranted => add(&mut state.counters.not_granted),
        Outcome::Granted(_) if !first && !repeated => add(&mut state.counters.reentered),
        Outcome::Granted(_) | Outcome::Waits(..) => {}
    });
}

/// `[fence, holds, lease-ms, waited-ms]`
pub fn reply_granted(ctx: Ctx<'_>, granted: &Granted) {
    ctx.reply_array(4);
    for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
        ctx.reply_integer(number);
    }
}
