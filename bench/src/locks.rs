//! Locks as the commands that acquire and release them: DLOCK, and what one writes without it.
//!
//! Libraries are measured as they ship, by `bench/peers`.

use redis::{Value, from_redis_value_ref};

use crate::error::Result;
use crate::results::DLOCK;
use crate::wire::{Connection, encode};

/// Commands that are sent before the first reply is read.
pub const BATCH: usize = 500;
/// Never expires during a measurement.
pub const LEASE: &str = "600000";

/// The least that a lock can cost. It does not check the owner, so a late DEL removes the lock of another one.
const SET_AND_DEL: &str = "SET NX PX + DEL";
const SET_AND_SCRIPT: &str = "SET NX PX + script";
const SCRIPTS_BY_EVAL: &str = "re-entrant scripts, EVAL";
const SCRIPTS_BY_EVALSHA: &str = "re-entrant scripts, EVALSHA";

/// Of the Redis documentation ("Distributed Locks with Redis"), and of most articles.
const DELETE_IF_OWNER: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
else
	return 0
end"#;

/// Of articles on re-entrant locks. It does not count holds: the first release frees the lock.
const SET_OR_RENEW: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
	return "OK"
else
	return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;

pub struct Lock {
    pub name: &'static str,
    pub acquire: Command,
    pub release: Command,
}

/// Words, some of which are `{key}` or `{owner}`.
pub struct Command(Vec<String>);

#[derive(Clone)]
pub struct Names {
    pub key: String,
    pub owner: String,
}

/// `lock:000123` and `owner-000123`.
pub fn short_names(number: usize) -> Names {
    Names {
        key: format!("lock:{number:06}"),
        owner: format!("owner-{number:06}"),
    }
}

/// How many locks are compared.
pub const COUNT: usize = 5;

/// Loads the scripts.
pub fn all(connection: &mut Connection) -> Result<[Lock; COUNT]> {
    let mut load = |script| connection.ask::<String>(&["SCRIPT", "LOAD", script]);
    let (delete, renew) = (load(DELETE_IF_OWNER)?, load(SET_OR_RENEW)?);
    Ok([
        dlock(),
        set_and_del(),
        Lock {
            name: SET_AND_SCRIPT,
            release: Command::new(&["EVALSHA", &delete, "1", "{key}", "{owner}"]),
            ..set_and_del()
        },
        Lock {
            name: SCRIPTS_BY_EVAL,
            acquire: Command::new(&["EVAL", SET_OR_RENEW, "1", "{key}", "{owner}", LEASE]),
            release: Command::new(&["EVAL", DELETE_IF_OWNER, "1", "{key}", "{owner}"]),
        },
        Lock {
            name: SCRIPTS_BY_EVALSHA,
            acquire: Command::new(&["EVALSHA", &renew, "1", "{key}", "{owner}", LEASE]),
            release: Command::new(&["EVALSHA", &delete, "1", "{key}", "{owner}"]),
        },
    ])
}

pub fn dlock() -> Lock {
    Lock {
        name: DLOCK,
        acquire: Command::new(&["DLOCK.ACQUIRE", "{key}", "{owner}", LEASE]),
        release: Command::new(&["DLOCK.RELEASE", "{key}", "{owner}"]),
    }
}

pub fn set_and_del() -> Lock {
    Lock {
        name: SET_AND_DEL,
        acquire: Command::new(&["SET", "{key}", "{owner}", "NX", "PX", LEASE]),
        release: Command::new(&["DEL", "{key}"]),
    }
}

impl Command {
    pub fn new(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn encode(&self, names: &Names, bytes: &mut Vec<u8>) {
        let word = |word: &String| match word.as_str() {
            "{key}" => names.key.clone(),
            "{owner}" => names.owner.clone(),
            _ => word.clone(),
        };
        let words: Vec<_> = self.0.iter().map(word).collect();
        encode(&words.iter().map(String::as_str).collect::<Vec<_>>(), bytes);
    }
}

/// Commands that are encoded in advance, in batches.
pub struct Requests {
    batches: Vec<(Vec<u8>, usize)>,
}

impl Requests {
    /// Each of the commands in turn for all names in turn.
    pub fn of(commands: &[&Command], names: impl Iterator<Item = Names>) -> Self {
        let mut batches = vec![(Vec::new(), 0)];
        for names in names {
            for command in commands {
                if batches.last().is_some_and(|(_, count)| *count == BATCH) {
                    batches.push((Vec::new(), 0));
                }
                if let Some((bytes, count)) = batches.last_mut() {
                    command.encode(&names, bytes);
                    *count += 1;
                }
            }
        }
        Self { batches }
    }

    /// An error if the server refuses one of them: it would cost less than one that is granted.
    pub fn run(&self, connection: &mut Connection) -> Result<()> {
        for (bytes, count) in &self.batches {
            connection.send(bytes)?;
            for _ in 0..*count {
                expect_done(&connection.receive()?)?;
            }
        }
        Ok(())
    }
}

/// Acquired, released, or written.
pub fn expect_done(reply: &Value) -> Result<()> {
    match reply {
        Value::Okay | Value::Int(0 | 1) => Ok(()),
        Value::BulkString(text) if text == b"OK" => Ok(()),
        Value::Array(_) => fence_of(reply).map(drop),
        _ => Err(format!("unexpected reply: {reply:?}").into()),
    }
}

/// The fence of a grant.
pub fn fence_of(reply: &Value) -> Result<i64> {
    let grant: std::result::Result<(i64, i64, i64, i64), _> = from_redis_value_ref(reply);
    let (fence, ..) = grant.map_err(|_| format!("not granted: {reply:?}"))?;
    Ok(fence)
}
