//! What the kit asks the server itself.

use std::time::Instant;

use dlock_testkit::{Client, LockInfo};
use redis::Value as Reply;
use serde_json::{Value, json};

use crate::outcome::{Outcome, within};
use crate::pattern::difference;
use crate::scenario::Fields;
use crate::setting::is_synchronous;
use crate::world::World;

/// `server`: a command. `replies` is the pattern of its reply.
pub fn command(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = fields.take_text("server")?;
    let pattern = fields.take("replies");
    let words: Vec<&str> = command.split(' ').collect();
    // What is deleted is lost before the server replies.
    match words[..] {
        ["DEL", key] => world.losses.push((Instant::now(), Some(key.to_owned()))),
        ["FLUSHALL"] => world.losses.push((Instant::now(), None)),
        _ => {}
    }
    let reply = match world.client()?.call(&command) {
        Ok(reply) => shown(&reply),
        Err(error) => json!({"error": error.code()}),
    };
    match pattern.and_then(|pattern| difference(&pattern, &reply, &|name| world.fence_of(name))) {
        None => Ok(()),
        Some(difference) => Err(difference),
    }
}

fn shown(reply: &Reply) -> Value {
    match reply {
        Reply::Nil => Value::Null,
        Reply::Int(number) => json!(number),
        Reply::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        Reply::SimpleString(text) => json!(text),
        Reply::Okay => json!("OK"),
        Reply::Array(items) => items.iter().map(shown).collect(),
        other => json!(format!("{other:?}")),
    }
}

/// `wait_for_lock`: until DLOCK.INFO of this key `is` as the pattern says.
pub fn wait_for_lock(world: &mut World, fields: &mut Fields) -> Outcome {
    let key = fields.take_text("wait_for_lock")?;
    wait_for(world, fields, |client| {
        client.find_lock(&key).map_or(Value::Null, lock)
    })
}

fn lock(info: LockInfo) -> Value {
    let holders = info.holders.iter().map(|holder| {
        json!({
            "owner": String::from_utf8_lossy(&holder.owner),
            "fence": holder.fence,
            "holds": holder.holds,
            "lease_ms": holder.lease_ms,
        })
    });
    json!({"limit": info.limit, "holders": holders.collect::<Value>(), "waiting": info.waiting})
}

/// `wait_for_info`: until a number in INFO dlock `is` as the pattern says.
pub fn wait_for_info(world: &mut World, fields: &mut Fields) -> Outcome {
    let field = fields.take_text("wait_for_info")?;
    wait_for(world, fields, |client| json!(client.stat(&field)))
}

fn wait_for(world: &World, fields: &mut Fields, ask: impl Fn(&mut Client) -> Value) -> Outcome {
    let pattern = fields.take("is").ok_or("`is` says what to wait for")?;
    let limit = fields.take_limit()?;
    let mut client = world.client()?;
    within(limit, || {
        let difference = difference(&pattern, &ask(&mut client), &|name| world.fence_of(name));
        difference.map_or(Ok(()), Err)
    })
}

/// `requests`: how many commands of this name drivers have sent, for a key if there is one, of those `with` these words.
pub fn requests(world: &mut World, fields: &mut Fields) -> Outcome {
    let command = fields.take_text("requests")?;
    let key = fields.take("key");
    let count = fields.take("count").ok_or("`count` says how many")?;
    let options = fields.take_list("with")?;
    let requests = world.requests();
    let found = requests.iter().filter(|request| {
        let of = request.words.get(1).map(String::as_str);
        let is_asked_for = request.is(&command) && key.as_ref().is_none_or(|key| key.as_str() == of);
        is_asked_for && options.iter().all(|option| request.option(option).is_some())
    });
    let found = found.count();
    if is_synchronous() && found > 0 && command == "DLOCK.ACQUIRE" {
        return Ok(());
    }
    difference(&count, &json!(found), &|name| world.fence_of(name)).map_or(Ok(()), Err)
}
