//! Locks that are a plain key with the owner as its value.

use super::client::{Client, ClientConfig};
use super::polling;
use crate::error::Result;
use crate::implementations::command::{
    Command, Implementation, KEY, LEASE_MS, OWNER, Reentry, is_ok, is_one,
};
use crate::resp::Connection;

pub const DELIFEQ: &str = "DELIFEQ";

/// Of the Redis documentation ("Distributed Locks with Redis"), and of most articles.
const DELETE_IF_OWNER: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
else
	return 0
end"#;
const SET_OR_RENEW: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
	return "OK"
else
	return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;

fn set() -> Command {
    Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok)
}

/// `SET NX PX`, then `DEL`: the lower bound of the cost of a lock. It does not check the owner, so a late DEL removes
/// the lock of another owner. It has no retry policy.
pub fn set_and_del() -> Implementation {
    Implementation::new(set(), Command::new(&["DEL", KEY], is_one))
}

/// The articles have no retry policy, or sleep for 2 s between attempts, so it is not measured under contention.
/// redsync and rslock send the same commands and have retry policies.
pub fn set_and_lua(connection: &mut Connection) -> Result<Implementation> {
    let release = Command::script(connection, DELETE_IF_OWNER, &[KEY], &[OWNER], is_one)?;
    Ok(Implementation::new(set(), release))
}

/// `DELIFEQ` checks the owner without a script. In Valkey since 9.0 (<https://valkey.io/commands/delifeq/>).
pub fn set_and_delifeq() -> Implementation {
    Implementation::new(set(), Command::new(&[DELIFEQ, KEY, OWNER], is_one))
}

/// There is no published retry policy for it. It retries after 10 ms, like the re-entrant Lua pair.
pub fn open_delifeq(config: &ClientConfig) -> Result<Box<dyn Client>> {
    polling::open(config, set_and_delifeq(), format!("owner-{:06}", config.number))
}

/// The pair of scripts that many articles recommend for a re-entrant lock. It does not count holds: a second
/// acquisition only renews the lease, and the first release frees the lock.
fn lua_pair(acquire: Command, release: Command) -> Implementation {
    Implementation {
        reentry: Reentry::Uncounted,
        ..Implementation::new(acquire, release)
    }
}

/// As published: the server receives and hashes the script each time.
pub fn lua_by_eval() -> Implementation {
    let acquire = Command::new(&["EVAL", SET_OR_RENEW, "1", KEY, OWNER, LEASE_MS], is_ok);
    lua_pair(
        acquire,
        Command::new(&["EVAL", DELETE_IF_OWNER, "1", KEY, OWNER], is_one),
    )
}

/// The faster variant.
pub fn lua_by_evalsha(connection: &mut Connection) -> Result<Implementation> {
    let acquire = Command::script(connection, SET_OR_RENEW, &[KEY], &[OWNER, LEASE_MS], is_ok)?;
    Ok(lua_pair(acquire, set_and_lua(connection)?.release))
}

/// The client of such an article ("go+redis 分布式锁", its `Lock`, `TryLock` and `Unlock`) sends the whole script with
/// EVAL each time, retries after 10 ms and uses ten random letters as the owner.
pub fn open_lua(config: &ClientConfig) -> Result<Box<dyn Client>> {
    polling::open(config, lua_by_eval(), format!("owner{:05}", config.number))
}
