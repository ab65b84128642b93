use std::ffi::c_int;

use dlock_core::engine::{EngineState, Error, LockValue, MAX_WAITERS_SHOWN, Process, begin_read};
use dlock_core::{Holder, LeaseClock, Limit, LockNameRef, Timeout, Waiter};

use crate::commands::CATEGORY;
use crate::redis::{Argument, Command, Ctx, Invocation, KeyUse, Metadata, ReadKey, Value};

/// DLOCK.INFO key
///
/// Replies a map of limit, holders, waiting and waiters, null when the lock is free and has no waiters.
pub struct Info;

impl Command for Info {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.info",
        flags: c"readonly fast",
        arity: 2,
        summary: c"Returns the limit, the holders with fences, holds and leases, and the queue of a lock.",
        complexity: c"O(N) where N is the number of holders and of waiters shown.",
        key: Some(KeyUse::Read),
        arguments: &[Argument::key(c"key")],
        categories: "read fast",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let (name, flags, db) = (call.arg(1)?, call.ctx.flags(), call.ctx.db());
        let clock = begin_read(&mut call.ctx, flags.into());
        let (waiting, waiters) = waiters(call.ctx.state(), db, name.bytes());
        let key = ReadKey::<LockValue>::open(&mut call.ctx, name);
        let holders: Vec<&Holder> = match key.value() {
            Value::OtherType => return Err(Error::WrongType),
            Value::Nothing => Vec::new(),
            Value::Ours(value) => value.lock.live_holders(clock).collect(),
        };
        let ctx = key.ctx();
        if holders.is_empty() && waiting == 0 {
            ctx.reply_null();
            return Ok(());
        }
        let limit = holders.iter().map(|holder| holder.limit()).min();
        ctx.reply_map(4);
        ctx.reply_bytes(b"limit");
        ctx.reply_signed(shown(limit.unwrap_or(Limit::SHARED)));
        ctx.reply_bytes(b"holders");
        ctx.reply_array(holders.len());
        for holder in holders {
            reply_holder(ctx, holder, clock);
        }
        ctx.reply_bytes(b"waiting");
        ctx.reply_integer(waiting as u64);
        ctx.reply_bytes(b"waiters");
        ctx.reply_array(waiters.len());
        for (waiter, is_queued) in &waiters {
            reply_waiter(ctx, waiter, *is_queued, clock);
        }
        Ok(())
    }
}

/// How many wait, and the first of them, each with whether an inbox gets its answer.
fn waiters(state: &EngineState, db: c_int, key: &[u8]) -> (usize, Vec<(Waiter, bool)>) {
    let Some(queue) = state.server.wait_table.queue(LockNameRef::new(db, key)) else {
        return (0, Vec::new());
    };
    let shown = queue.iter().take(MAX_WAITERS_SHOWN).map(|(_, waiter)| {
        let is_queued = state.server.inboxes.has_name(waiter.inbox());
        (waiter.clone(), is_queued)
    });
    (queue.len(), shown.collect())
}

/// What a limit is shown as: -1 = none.
fn shown(limit: Limit) -> i64 {
    limit.get().map_or(-1, i64::from)
}

fn reply_holder(ctx: &Ctx<'_>, holder: &Holder, clock: LeaseClock) {
    let held_ms = holder.since().ms_until(clock.now);
    let numbers = [
        ("fence", holder.fence()),
        ("holds", holder.holds()),
        ("lease-ms", holder.lease_ms(clock)),
        ("held-ms", held_ms),
    ];
    reply_owner_with(
        ctx,
        holder.owner(),
        0,
        numbers.map(|(name, number)| (name, number.cast_signed())),
    );
}

fn reply_waiter(ctx: &Ctx<'_>, waiter: &Waiter, is_queued: bool, clock: LeaseClock) {
    let timeout_ms = match waiter.timeout() {
        Timeout::Infinite => -1,
        Timeout::Ms(ms) => ms.cast_signed(),
    };
    let waited_ms = waiter.since().ms_until(clock.now).cast_signed();
    let numbers = [
        ("limit", shown(waiter.limit())),
        ("waited-ms", waited_ms),
        ("timeout-ms", timeout_ms),
    ];
    reply_owner_with(ctx, waiter.owner(), usize::from(is_queued), numbers);
    if is_queued {
        ctx.reply_bytes(b"wait");
        ctx.reply_bytes(b"queue");
    }
}

/// A map of the owner, these numbers, and `more` pairs that follow.
fn reply_owner_with<const N: usize>(ctx: &Ctx<'_>, owner: &[u8], more: usize, numbers: [(&str, i64); N]) {
    ctx.reply_map(N.saturating_add(1).saturating_add(more));
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(owner);
    for (name, number) in numbers {
        ctx.reply_bytes(name.as_bytes());
        ctx.reply_signed(number);
    }
}
