//! Requests that wait through one inbox, for locks that somebody else holds.

use std::time::Instant;

use crate::error::Result;
use crate::locks::{BATCH, LEASE};
use crate::machine::MainThread;
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::ms;
use crate::wire::{Connection, encode};

/// A name, and the milliseconds of one attempt.
pub type Case = (&'static str, fn(&Scale) -> Result<f64>);

pub const WAITERS: usize = 100_000;
/// The inbox of all of them.
pub const INBOX: &str = "inbox";
pub const TTL_MS: &str = "60000";

/// Requests that wait through one inbox, for locks that a writer holds.
pub struct Crowd {
    pub server: Server,
    pub control: Connection,
    pub requests: Connection,
    waiters: usize,
}

impl Crowd {
    pub fn of(server: Server) -> Result<Self> {
        let mut control = server.connect()?;
        control.call(&["DLOCK.GRANTS", INBOX, "0", "TTL", TTL_MS])?;
        Ok(Self {
            control,
            requests: server.connect()?,
            server,
            waiters: 0,
        })
    }

    pub fn start() -> Result<Self> {
        let mut crowd = Self::of(Server::start()?)?;
        let limit = (WAITERS + 1).to_string();
        let words = ["CONFIG", "SET", "dlock.max-waiters-per-lock", &limit];
        crowd.control.call(&words)?;
        Ok(crowd)
    }

    pub fn hold(&mut self, locks: usize) -> Result<()> {
        let mut keys = (0..locks).map(key);
        keys.try_for_each(|key| self.control.call(&["DLOCK.ACQUIRE", &key, "writer", LEASE]))
    }

    /// More requests for each of these locks in turn. `words`: their limits, and when they time out.
    pub fn queue(
        &mut self,
        count: usize,
        locks: usize,
        words: impl Fn() -> (&'static str, String),
    ) -> Result<()> {
        let end = self.waiters + count;
        while self.waiters < end {
            let (limit, timeout) = words();
            let (batch, mut bytes) = (self.waiters..end.min(self.waiters + BATCH), Vec::new());
            for number in batch.clone() {
                let names = (key(number % locks), format!("owner-{number}"));
                encode_request(&names, limit, &timeout, &format!("r{number}"), &mut bytes);
            }
            self.requests.send(&bytes)?;
            for _ in batch.clone() {
                self.requests.receive()?;
            }
            self.waiters = batch.end;
        }
        Ok(())
    }

    /// The most that the server worked during one PING, in milliseconds, until nobody waits: whatever else runs on this
    /// machine does not count.
    pub fn worst_ping_until_all_are_answered(&mut self) -> Result<f64> {
        self.worst_ping_until("dlock_waiters", |waiters| waiters == 0.0)
    }

    /// The same, until this field of INFO has a certain value.
    pub fn worst_ping_until(&mut self, field: &str, is_over: impl Fn(f64) -> bool) -> Result<f64> {
        let (mut thread, mut worst) = (MainThread::of(self.server.pid())?, 0.0_f64);
        while !is_over(self.control.number("dlock", field)?) {
            worst = worst.max(ping(&mut self.control, &mut thread)?);
        }
        Ok(worst)
    }
}

pub fn ping(control: &mut Connection, thread: &mut MainThread) -> Result<f64> {
    let (start, before) = (Instant::now(), thread.cpu_ms()?);
    control.call(&["PING"])?;
    Ok((thread.cpu_ms()? - before).min(ms(start.elapsed())))
}

pub fn key(number: usize) -> String {
    format!("lock-{number:06}")
}

pub fn encode_request(
    (key, owner): &(String, String),
    limit: &str,
    timeout: &str,
    id: &str,
    bytes: &mut Vec<u8>,
) {
    let request = ["DLOCK.ACQUIRE", key, owner, LEASE];
    let limit: &[&str] = if limit.is_empty() { &[] } else { &[limit] };
    let wait = ["QUEUE", INBOX, timeout, "REQID", id];
    encode(&[&request[..], limit, &wait].concat(), bytes);
}
