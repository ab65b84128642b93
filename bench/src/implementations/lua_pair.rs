//! The pair of scripts that many articles recommend for a re-entrant lock. It does not count holds: a second
//! acquisition only renews the lease, and the first release frees the lock.
//!
//! The client of such an article ("go+redis 分布式锁", its `Lock`, `TryLock` and `Unlock`) sends the whole script with
//! EVAL each time and retries after 10 ms.

use super::{Client, ClientConfig, polling};
use crate::Result;
use crate::implementations::command::{
    Command, Implementation, KEY, LEASE_MS, OWNER, Reentry, is_ok, is_one,
};
use crate::resp::Connection;

const ACQUIRE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
	return "OK"
else
	return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;
const RELEASE: &str = super::set_and_lua::RELEASE;

/// As published: the server receives and hashes the script each time.
pub fn by_eval() -> Implementation {
    pair("EVAL", ACQUIRE, RELEASE)
}

/// The faster variant.
pub fn by_evalsha(connection: &mut Connection) -> Result<Implementation> {
    let acquire = super::load_script(connection, ACQUIRE)?;
    let release = super::load_script(connection, RELEASE)?;
    Ok(pair("EVALSHA", &acquire, &release))
}

fn pair(eval: &str, acquire: &str, release: &str) -> Implementation {
    Implementation {
        reentry: Reentry::Uncounted,
        ..Implementation::new(
            Command::new(&[eval, acquire, "1", KEY, OWNER, LEASE_MS], is_ok),
            Command::new(&[eval, release, "1", KEY, OWNER], is_one),
        )
    }
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    // The article uses ten random letters.
    let (owner, lease_ms) = (format!("owner{:05}", config.number), config.lease_ms.to_string());
    let acquire = ["EVAL", ACQUIRE, "1", config.key, &owner, &lease_ms];
    polling::open(config, &acquire, &["EVAL", RELEASE, "1", config.key, &owner])
}
