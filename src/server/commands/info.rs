use crate::lock::{Holder, Limit, Moment};
use crate::server::change::moment;
use crate::server::command::{Call, Command, Failure};
use crate::server::ctx::Ctx;
use crate::server::key::{Key, Value};
use crate::server::metadata::{Argument, CATEGORY, KeyUse, Metadata};

/// DLOCK.INFO key
///
/// Replies a map of limit, holders, waiting and waiters, null when the lock is free.
pub struct Info;

impl Command for Info {
    const METADATA: Metadata = Metadata {
        name: c"dlock.info",
        flags: c"readonly fast",
        arity: 2,
        summary: c"Returns all about a lock: its limit and its holders with fences, holds and leases.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Read),
        arguments: &[Argument::key(c"key")],
        category: Some(CATEGORY),
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let moment = moment(call.ctx.flags());
        let mut key = Key::read(call.ctx, call.key()?);
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
        match holders.iter().map(|holder| holder.limit()).min() {
            None => call.ctx.reply_null(),
            Some(limit) => reply(call.ctx, limit, &holders, &moment),
        }
        Ok(())
    }
}

fn reply(ctx: Ctx<'_>, limit: Limit, holders: &[&Holder], moment: &Moment) {
    ctx.reply_map(4);
    ctx.reply_bytes(b"limit");
    match limit.get() {
        Some(n) => ctx.reply_integer(u64::from(n)),
        None => ctx.reply_signed(-1),
    }
    ctx.reply_bytes(b"holders");
    ctx.reply_array(holders.len());
    for holder in holders {
        reply_holder(ctx, holder, moment);
    }
    ctx.reply_bytes(b"waiting");
    ctx.reply_integer(0);
    ctx.reply_bytes(b"waiters");
    ctx.reply_array(0);
}

fn reply_holder(ctx: Ctx<'_>, holder: &Holder, moment: &Moment) {
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
