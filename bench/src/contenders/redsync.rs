//! The rules of redsync for Go, on one server: github.com/go-redsync/redsync at 5560bd2, `mutex.go`
//! (`lockContext`, `acquire`, `release`), `redsync.go` (50 to 250 ms at random between two tries) and
//! `scripts.go` (`deleteScript`). After each failed try it releases, though it holds nothing.
//!
//! It gives up after 32 tries; here it begins again.

use std::time::{Duration, Instant};

use super::wire::{Wire, expect, pause};
use super::{Client, Wanted};
use crate::Result;
use crate::contender::{is_ok, is_one};
use crate::resp::Reply;

pub const DELETE: &str = r#"
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
"#;
const MIN_RETRY_DELAY_MS: u64 = 50;
const MAX_RETRY_DELAY_MS: u64 = 250;

struct Redsync {
    wire: Wire,
    key: String,
    value: String,
    expiry_ms: String,
    delete: String,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    let mut wire = Wire::new(wanted.server.connect()?);
    let delete = super::load_script(wire.unlogged(), DELETE)?;
    Ok(Box::new(Redsync {
        wire,
        key: wanted.key.into(),
        // As long as 16 random bytes in base 64, which it takes.
        value: format!("{:024}", wanted.number),
        expiry_ms: wanted.lease_ms.to_string(),
        delete,
    }))
}

impl Redsync {
    fn delete(&mut self) -> Result<Reply> {
        self.wire
            .call(&["EVALSHA", &self.delete, "1", &self.key, &self.value])
    }
}

impl Client for Redsync {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["SET", &self.key, &self.value, "PX", &self.expiry_ms, "NX"];
            match self.wire.call(&command)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            self.delete()?;
            let delay_ms = fastrand::u64(MIN_RETRY_DELAY_MS..MAX_RETRY_DELAY_MS);
            if !pause(Duration::from_millis(delay_ms), end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.delete()?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.wire.commands)
    }
}
