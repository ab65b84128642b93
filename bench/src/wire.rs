//! A connection that adds little to what is measured: commands are encoded in advance, and many are sent before the
//! first reply is read.

use std::time::Duration;

use dlock_testkit::packed;
use redis::{FromRedisValue, InfoDict, Value};

use crate::error::Result;
use crate::interrupt;

/// Longer than any server takes to reply.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Connection(dlock_testkit::Connection);

/// Appends a command.
pub fn encode(words: &[&str], bytes: &mut Vec<u8>) {
    bytes.extend(packed(words));
}

/// One command.
pub fn command(words: &[&str]) -> Vec<u8> {
    packed(words)
}

impl Connection {
    pub fn open(port: u16) -> Result<Self> {
        Ok(Self(dlock_testkit::Connection::open(port)?))
    }

    /// Sends encoded commands.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        interrupt::check()?;
        Ok(self.0.send(bytes)?)
    }

    /// The next reply. An error reply is an error.
    pub fn receive(&mut self) -> Result<Value> {
        Ok(self.0.read(TIMEOUT)?.extract_error()?)
    }

    /// Whether a reply has arrived to the one request that is under way.
    pub fn has_reply(&self) -> Result<bool> {
        Ok(!self.0.is_silent()?)
    }

    /// Sends a command and reads its reply.
    pub fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T> {
        self.send(&command(words))?;
        let reply = self
            .receive()
            .map_err(|error| format!("{}: {error}", words.join(" ")))?;
        Ok(redis::from_redis_value(reply)?)
    }

    /// A command whose reply does not matter unless it is an error.
    pub fn call(&mut self, words: &[&str]) -> Result<()> {
        self.ask::<Value>(words).map(drop)
    }

    /// A field of INFO, if the server has it.
    pub fn info<T: FromRedisValue>(&mut self, section: &str, field: &str) -> Result<Option<T>> {
        Ok(self.ask::<InfoDict>(&["INFO", section])?.get(field))
    }

    /// A number in INFO.
    pub fn number(&mut self, section: &str, field: &str) -> Result<f64> {
        let number = self.info(section, field)?;
        Ok(number.ok_or_else(|| format!("INFO {section} has no number {field}"))?)
    }

    /// How often clients have called a command.
    pub fn calls(&mut self, command: &str) -> Result<f64> {
        let stats: Option<String> = self.info("commandstats", &format!("cmdstat_{command}"))?;
        let stats = stats.unwrap_or_default();
        let mut fields = stats.split(',').filter_map(|field| field.split_once('='));
        let calls = fields.find(|(name, _)| *name == "calls");
        Ok(calls.map_or(Ok(0.0), |(_, calls)| calls.parse())?)
    }

    /// The CPU time of the main thread, of the process where the server does not tell, in seconds.
    pub fn cpu_seconds(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for field in ["used_cpu_user", "used_cpu_sys"] {
            let main_thread: Option<f64> = self.info("cpu", &format!("{field}_main_thread"))?;
            sum += main_thread.map_or_else(|| self.number("cpu", field), Ok)?;
        }
        Ok(sum)
    }
}
