//! `SET NX PX` with a script that deletes the key only when the value is the owner's: the pattern of the Redis
//! documentation ("Distributed Locks with Redis") and of most articles.
//!
//! The articles have no retry policy, or sleep for 2 s between attempts, so it is not measured under contention.
//! redsync and rslock send the same commands and have retry policies.

use crate::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, is_ok, is_one};
use crate::resp::Connection;

pub const RELEASE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
else
	return 0
end"#;

pub fn implementation(connection: &mut Connection) -> Result<Implementation> {
    let release = super::load_script(connection, RELEASE)?;
    Ok(Implementation::new(
        Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
        Command::new(&["EVALSHA", &release, "1", KEY, OWNER], is_one),
    ))
}
