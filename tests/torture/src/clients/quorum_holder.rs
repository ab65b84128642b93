//! A client that holds a lock on a majority of servers, for a moment at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use redis_dlock_quorum::{Guard, Lock};
use tokio::runtime::Runtime;

use dlock_drill::clients::Gate;

use super::promise::{Promise, Promised};
use crate::history::{Micros, Recorder, now};

const KEY: &str = "door";
const MAX_THINK_MS: u64 = 8;

/// See the module documentation.
pub struct QuorumHolder {
    /// The lock, with its lease.
    pub lock: Lock,
    /// Where its requests run.
    pub runtime: Arc<Runtime>,
    /// Records what the guards promise.
    pub recorder: Recorder,
    /// Chooses times.
    pub rng: Rng,
    /// Pauses it while it holds the lock.
    pub gate: Gate,
    /// Of one acquisition in eight, up to three quarters of it pass.
    pub lease_ms: u64,
}

impl QuorumHolder {
    /// Acquires the lock again and again, until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.hold();
        }
    }

    /// Holds the lock for a while, perhaps past the end of its lease.
    fn hold(&mut self) {
        let mut lock = self.lock.clone();
        if self.rng.bool() {
            // Without renewal.
            lock = lock.max_hold(Duration::from_millis(self.lease_ms));
        }
        let Ok(guard) = self.runtime.block_on(lock.acquire()) else {
            return;
        };
        let fence = guard.fence().expect("an exclusive lock has one");
        self.record_held(&guard, |after, lease_ms| Promised::Granted {
            limit: 1,
            after,
            fence,
            lease_ms,
        });
        self.think();
        self.gate.pass();
        self.record_held(&guard, |_, lease_ms| Promised::Held { lease_ms });
        self.record(&guard, now(), Promised::Released);
        // Whether or not it was still held.
        let _ = self.runtime.block_on(guard.release());
    }

    fn think(&mut self) {
        let ms = match self.rng.u8(..8) {
            0 => self.rng.u64(self.lease_ms * 3 / 8..=self.lease_ms * 3 / 4),
            _ => self.rng.u64(..=MAX_THINK_MS),
        };
        thread::sleep(Duration::from_millis(ms));
    }

    /// Records that the lock is held at this moment, if it is.
    fn record_held(&self, guard: &Guard, kind: impl FnOnce(Micros, u64) -> Promised) {
        let at = now();
        let lease_ms = u64::try_from(guard.remaining().as_millis()).unwrap_or(u64::MAX);
        if lease_ms > 0 {
            self.record(guard, at, kind(at, lease_ms));
        }
    }

    fn record(&self, guard: &Guard, at: Micros, kind: Promised) {
        let promise = Promise {
            owner: guard.owner().to_string(),
            key: KEY.into(),
            at,
            kind,
        };
        promise.record(&self.recorder);
    }
}
