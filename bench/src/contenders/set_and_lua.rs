//! `SET NX PX` with a script that deletes the key only when the value is the owner's: the pattern of the Redis
//! documentation ("Distributed Locks with Redis") and of most articles.
//!
//! As for waiting, the articles either have no rule or sleep for 2 s between two tries, so it takes no part in
//! that comparison; redsync and rslock send the same commands, with rules of their own.

use crate::Result;
use crate::contenders::command::{Command, Contender, KEY, LEASE_MS, OWNER, is_ok, is_one};
use crate::resp::Connection;

pub const RELEASE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
else
	return 0
end"#;

pub fn contender(connection: &mut Connection) -> Result<Contender> {
    let release = super::load_script(connection, RELEASE)?;
    Ok(Contender::new(
        Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
        Command::new(&["EVALSHA", &release, "1", KEY, OWNER], is_one),
    ))
}
