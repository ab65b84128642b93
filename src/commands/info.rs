use std::ffi::c_int;

use crate::commands::entry::{Call, Command, Failure};
use crate::module::state;
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::redis::ctx::Ctx;
use crate::redis::key::{Key, Value};
use crate::txn::moment;
use dlock_core::{Holder, Limit, Timeout, TransitionContext, Waiter};

/// DLOCK.INFO key
///
/// Replies a map of limit, holders, waiting and waiters, null when the lock is free and nobody waits.
pub struct Info;

impl Command for Info {
    const METADATA: Metadata = Metadata {
        name: c"dlock.info",
        flags: c"readonly fast",
        arity: 2,
        summary:
            c"Returns all about a lock: its limit, its holders with fences, holds and leases, and its queue.",
        complexity: c"O(N) where N is the number of holders and of waiters shown.",
        key: Some(KeyUse::Read),
        arguments: &[Argument::key(c"key")],
        categories: "read fast",
        is_public: true,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let moment = moment(call.ctx.flags());
        let name = call.key()?;
        let mut key = Key::read(call.ctx, name);
        let holders: Vec<&Holder> = match key.value() {
            Value::OtherType => return Err(Failure::WrongType),
            Value::Nothing => Vec::new(),
            Value::Lock(stored) => stored
                .lock
                .holders()
                .iter()
                .filter(|holder| moment.is_live(holder))
                .collect(),
        };
        let (waiting, waiters) = waiters(call.ctx.db(), name.bytes());
        if holders.is_empty() && waiting == 0 {
            call.ctx.reply_null();
            return Ok(());
        }
        call.ctx.reply_map(4);
        call.ctx.reply_bytes(b"limit");
        reply_limit(
            call.ctx,
            holders
                .iter()
                .map(|holder| holder.limit())
                .min()
                .unwrap_or(Limit::SHARED),
        );
        call.ctx.reply_bytes(b"holders");
        call.ctx.reply_array(holders.len());
        holders
            .iter()
            .for_each(|holder| reply_holder(call.ctx, holder, &moment));
        call.ctx.reply_bytes(b"waiting");
        call.ctx.reply_integer(waiting as u64);
        call.ctx.reply_bytes(b"waiters");
        call.ctx.reply_array(waiters.len());
        waiters
            .iter()
            .for_each(|waiter| reply_waiter(call.ctx, waiter, &moment));
        Ok(())
    }
}

/// So many waiters are shown.
const SHOWN: usize = 128;

/// How many wait, and the first of them.
fn waiters(db: c_int, key: &[u8]) -> (usize, Vec<Waiter>) {
    state::with(|state| {
        let name = state.waiting.name(db, key);
        name.and_then(|name| state.waiting.queue(&name))
            .map_or((0, Vec::new()), |queue| {
                (
                    queue.len(),
                    queue
                        .iter()
                        .take(SHOWN)
                        .map(|(_, waiter)| waiter.clone())
                        .collect(),
                )
            })
    })
}

fn reply_limit(ctx: Ctx<'_>, limit: Limit) {
    match limit.get() {
        Some(n) => ctx.reply_integer(u64::from(n)),
        None => ctx.reply_signed(-1),
    }
}

fn reply_waiter(ctx: Ctx<'_>, waiter: &Waiter, moment: &TransitionContext) {
    ctx.reply_map(4);
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(waiter.owner());
    ctx.reply_bytes(b"limit");
    reply_limit(ctx, waiter.limit());
    ctx.reply_bytes(b"waited-ms");
    ctx.reply_integer(waiter.since().ms_until(moment.now));
    ctx.reply_bytes(b"timeout-ms");
    match waiter.timeout() {
        Timeout::Infinite => ctx.reply_signed(-1),
        Timeout::Ms(ms) => ctx.reply_integer(ms),
    }
}

fn reply_holder(ctx: Ctx<'_>, holder: &Holder, moment: &TransitionContext) {
    let numbers: [(&[u8], u64); 4] = [
        (b"fence", holder.fence()),
        (b"holds", holder.holds()),
        (b"lease-ms", moment.lease_ms(holder)),
        (b"held-ms", holder.since().ms_until(moment.now)),
    ];
    ctx.reply_map(numbers.len().saturating_add(1));
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(holder.owner());
    for (name, number) in numbers {
        ctx.reply_bytes(name);
        ctx.reply_integer(number);
    }
}
