//! The pair of scripts that many articles recommend for a lock that its owner may take again. It counts
//! nothing: a second acquisition only renews, and the first release gives the lock up.
//!
//! Such an article's client ("go+redis 分布式锁", its `Lock`, `TryLock` and `Unlock`) sends the whole script by
//! EVAL each time, and tries again after 10 ms.

use std::time::{Duration, Instant};

use super::wire::{Wire, expect, pause};
use super::{Client, Wanted};
use crate::Result;
use crate::contenders::command::{Command, Contender, KEY, LEASE_MS, OWNER, Reentry, is_ok, is_one};
use crate::resp::{Connection, Reply};

const ACQUIRE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
	return "OK"
else
	return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;
const RELEASE: &str = super::set_and_lua::RELEASE;
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// As such articles send them: the server gets the text each time, and hashes it.
pub fn by_eval() -> Contender {
    pair("EVAL", ACQUIRE, RELEASE)
}

/// The favourable way.
pub fn by_evalsha(connection: &mut Connection) -> Result<Contender> {
    let acquire = super::load_script(connection, ACQUIRE)?;
    let release = super::load_script(connection, RELEASE)?;
    Ok(pair("EVALSHA", &acquire, &release))
}

fn pair(eval: &str, acquire: &str, release: &str) -> Contender {
    Contender {
        reentry: Reentry::Forgotten,
        ..Contender::new(
            Command::new(&[eval, acquire, "1", KEY, OWNER, LEASE_MS], is_ok),
            Command::new(&[eval, release, "1", KEY, OWNER], is_one),
        )
    }
}

struct Polling {
    wire: Wire,
    key: String,
    owner: String,
    lease_ms: String,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling {
        wire: Wire::new(wanted.server.connect()?),
        key: wanted.key.into(),
        // Ten random letters in the article.
        owner: format!("owner{:05}", wanted.number),
        lease_ms: wanted.lease_ms.to_string(),
    }))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["EVAL", ACQUIRE, "1", &self.key, &self.owner, &self.lease_ms];
            match self.wire.call(&command)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            if !pause(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.wire.call(&["EVAL", RELEASE, "1", &self.key, &self.owner])?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.wire.commands)
    }
}
