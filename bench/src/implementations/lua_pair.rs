//! The pair of scripts that many articles recommend for a re-entrant lock. It does not count holds: a second
//! acquisition only renews the lease, and the first release frees the lock.
//!
//! The client of such an article ("go+redis 分布式锁", its `Lock`, `TryLock` and `Unlock`) sends the whole script with
//! EVAL each time and retries after 10 ms.

use std::time::{Duration, Instant};

use super::counting::{CountingConnection, expect, sleep_until};
use super::{Client, ClientConfig};
use crate::Result;
use crate::implementations::command::{
    Command, Implementation, KEY, LEASE_MS, OWNER, Reentry, is_ok, is_one,
};
use crate::resp::{Connection, Reply};

const ACQUIRE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
	return "OK"
else
	return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;
const RELEASE: &str = super::set_and_lua::RELEASE;
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);

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

struct Polling {
    connection: CountingConnection,
    key: String,
    owner: String,
    lease_ms: String,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling {
        connection: CountingConnection::new(config.server.connect()?),
        key: config.key.into(),
        // The article uses ten random letters.
        owner: format!("owner{:05}", config.number),
        lease_ms: config.lease_ms.to_string(),
    }))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["EVAL", ACQUIRE, "1", &self.key, &self.owner, &self.lease_ms];
            match self.connection.call(&command)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            if !sleep_until(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self
            .connection
            .call(&["EVAL", RELEASE, "1", &self.key, &self.owner])?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands)
    }
}
