//! A random workload: acquire, extend, re-enter, release, or forget to release.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::gate::Gate;
use super::lock_client::{LockClient, Route};
use super::pace::Pace;
use crate::history::{Acquire, Element, GUARDED, Limit, Micros, Op, PLAIN, Push, Reply, Wait, now};

/// Parameters of the workload. Times in milliseconds.
#[derive(Clone)]
pub struct Workload {
    /// The locks, each with the limits to request.
    pub locks: Vec<(String, Vec<Limit>)>,
    pub lease_ms: RangeInclusive<u64>,
    /// Pause between two steps.
    pub think_ms: RangeInclusive<u64>,
    pub block_ms: RangeInclusive<u64>,
    pub skip_release_one_in: u32,
    /// Whether a client keeps its owner name after a lost connection. Only safe where the server is dead, not slow:
    /// otherwise an old request could arrive after a newer one.
    pub keeps_owner: bool,
    /// Time limit for a reply to a request that does not block.
    pub reply_timeout: Duration,
    /// Whether a holder that got no reply may ask again whether it still holds the lock, before it goes on as another
    /// owner. Half of them do; the others trust their deadline.
    pub asks_again: bool,
    /// Limits how often clients ask for locks, all together.
    pub pace: Option<Pace>,
    /// Whether holders write to two lists of each lock, one by GUARD and one without.
    pub writes: bool,
}

/// Writes between two steps, at most.
const MAX_WRITES: u8 = 4;
/// Before one in this many writes, the holder is stopped until its lease has ended.
const STOPPED_ONE_IN: u8 = 8;
/// During one in this many guarded writes, the holder releases the lock on another connection.
const RELEASED_ONE_IN: u8 = 8;
/// One in this many guarded writes has the fence of an earlier grant.
const OUTDATED_ONE_IN: u8 = 8;
/// Longer than any server is stopped.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

impl Workload {
    /// Two mutexes, a semaphore of two, and a read-write lock. Leases of up to `lease_ms`.
    pub fn mixed(lease_ms: u64) -> Self {
        Self {
            locks: vec![
                ("door".into(), vec![Limit::Of(1)]),
                ("gate".into(), vec![Limit::Of(1)]),
                ("pool".into(), vec![Limit::Of(2)]),
                ("book".into(), vec![Limit::Shared, Limit::Shared, Limit::Of(1)]),
            ],
            lease_ms: lease_ms / 2..=lease_ms,
            think_ms: 0..=lease_ms / 8,
            block_ms: 1..=lease_ms * 2,
            skip_release_one_in: 20,
            keeps_owner: false,
            reply_timeout: REPLY_TIMEOUT,
            asks_again: false,
            pace: None,
            writes: false,
        }
    }

    /// One mutex, whose holders keep it for a good part of their leases of up to `lease_ms`. Some never release it.
    pub fn holding(lock: String, lease_ms: u64, reply_timeout: Duration, pace: &Pace) -> Self {
        Self {
            locks: vec![(lock, vec![Limit::Of(1)])],
            block_ms: lease_ms / 2..=lease_ms * 2,
            asks_again: true,
            pace: Some(pace.clone()),
            reply_timeout,
            ..Self::mixed(lease_ms)
        }
    }

    /// As [`Workload::holding`], but released at once: its next grant is never far, unless no lock is granted.
    pub fn passing(lock: String, lease_ms: u64, reply_timeout: Duration, pace: &Pace) -> Self {
        Self {
            think_ms: 0..=lease_ms / 20,
            skip_release_one_in: u32::MAX,
            ..Self::holding(lock, lease_ms, reply_timeout, pace)
        }
    }

    /// Two mutexes, whose holders write, also after the end of their lease.
    pub fn writing(lease_ms: u64) -> Self {
        let mixed = Self::mixed(lease_ms);
        Self {
            locks: mixed.locks.into_iter().take(2).collect(),
            think_ms: 0..=lease_ms / 200,
            keeps_owner: true,
            writes: true,
            ..mixed
        }
    }
}

/// Runs the workload on one client.
pub struct Worker<R: Route> {
    name: String,
    lock_client: LockClient<R>,
    workload: Workload,
    rng: Rng,
    gate: Gate,
    stop: Arc<AtomicBool>,
    generation: u32,
    requests: u32,
    writes: u64,
    outdated_fence: u64,
}

struct HeldLock<'a> {
    key: &'a str,
    limit: Limit,
    reqid: Option<String>,
    fence: u64,
    deadline: Micros,
}

impl<R: Route + Send> Worker<R>
where
    R::Link: Send,
{
    /// The owner names begin with that of the client.
    pub fn new(
        lock_client: LockClient<R>,
        workload: Workload,
        rng: Rng,
        gate: Gate,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            name: lock_client.owner.clone(),
            lock_client,
            workload,
            rng,
            gate,
            stop,
            generation: 0,
            requests: 0,
            writes: 0,
            outdated_fence: 1,
        }
    }

    /// Runs until the flag is set, then releases the lock it holds.
    pub fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.acquire_and_release();
        }
    }

    fn acquire_and_release(&mut self) {
        let locks = self.workload.locks.clone();
        let (key, limits) = &locks[self.rng.usize(..locks.len())];
        let limit = limits[self.rng.usize(..limits.len())];
        let acquire = self.new_request(limit);
        let Some(op) = self.acquire(key, &acquire) else {
            return self.back_off();
        };
        let Reply::Granted { fence, .. } = op.reply else {
            return self.back_off();
        };
        let mut held = HeldLock {
            key,
            limit,
            reqid: acquire.reqid,
            fence,
            deadline: op.safe_deadline(),
        };
        if self.use_lock(&mut held) {
            self.release(&held);
        }
        self.outdated_fence = fence;
    }

    fn new_request(&mut self, limit: Limit) -> Acquire {
        self.requests += 1;
        Acquire {
            lease_ms: self.rng.u64(self.workload.lease_ms.clone()),
            limit,
            wait: self.some_wait(),
            reqid: self.rng.bool().then(|| format!("r{}", self.requests)),
        }
    }

    fn some_wait(&mut self) -> Wait {
        if self.rng.u8(..3) == 0 {
            return Wait::No;
        }
        Wait::Block {
            timeout_ms: self.rng.u64(self.workload.block_ms.clone()),
        }
    }

    /// Acquires. If the reply is lost, retries or cancels where that is safe.
    fn acquire(&mut self, key: &str, acquire: &Acquire) -> Option<Op> {
        self.keep_pace();
        self.gate.pass();
        let op = self.lock_client.acquire(key, acquire.clone())?;
        if !op.reply.is_unknown() {
            return Some(op);
        }
        if !self.workload.keeps_owner {
            self.switch_owner();
            return Some(op);
        }
        self.back_off();
        match (self.rng.u8(..3), &acquire.reqid) {
            (0, Some(_)) => self.lock_client.acquire(key, acquire.clone()),
            (1, Some(id)) => {
                self.lock_client.release(key, None, false, Some(id.clone()));
                None
            }
            _ => Some(op),
        }
    }

    /// Whether a server confirms the hold before its deadline. What was sent before may still arrive: so the owner does no
    /// more than that, and release.
    fn still_holds(&mut self, held: &HeldLock<'_>) -> bool {
        while now() < held.deadline {
            self.keep_pace();
            self.back_off();
            let op = self.extend(held, Some(held.fence));
            match op.map(|op| op.reply) {
                Some(Reply::Lease(_)) => return true,
                Some(reply) if reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"]) => return false,
                // Nobody knows yet.
                Some(_) | None => {}
            }
        }
        false
    }

    fn keep_pace(&self) {
        if let Some(pace) = &self.workload.pace {
            pace.pass();
        }
    }

    /// Performs some steps with the lock. Returns whether to release it afterwards.
    fn use_lock(&mut self, held: &mut HeldLock<'_>) -> bool {
        for _ in 0..self.rng.u8(..4) {
            if self.stop.load(Ordering::Relaxed) {
                return true;
            }
            self.gate.pass();
            // At once after the grant: a late write of the last holder may be under way.
            if self.workload.writes && !self.write(held) {
                return false;
            }
            self.think();
            if now() >= held.deadline {
                return true;
            }
            let op = match self.rng.u8(..4) {
                0 => self.reenter(held),
                1 => self.extend(held, None),
                _ => self.extend(held, Some(held.fence)),
            };
            if let Some(Reply::Granted { fence, .. }) = op.as_ref().map(|op| &op.reply) {
                held.fence = *fence;
            }
            match op {
                Some(op) if op.safe_deadline() > 0 => held.deadline = held.deadline.max(op.safe_deadline()),
                Some(op) if op.reply.is_unknown() => {
                    if self.workload.asks_again && self.rng.bool() && self.still_holds(held) {
                        self.lock_client.release(held.key, Some(held.fence), true, None);
                    }
                    self.on_disconnect();
                    return self.workload.keeps_owner;
                }
                Some(op) if op.reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"]) => return false,
                Some(_) | None => {}
            }
        }
        self.think();
        true
    }

    /// Writes several times, sometimes late. Returns whether the owner may go on: not if a write may still be executed.
    fn write(&mut self, held: &HeldLock<'_>) -> bool {
        for _ in 0..self.rng.u8(1..=MAX_WRITES) {
            // Without GUARD, a correct holder checks its deadline.
            let may_write_plain = now() < held.deadline;
            if self.rng.u8(..STOPPED_ONE_IN) == 0 {
                self.stop_past(held.deadline);
            }
            if self.rng.u8(..RELEASED_ONE_IN) == 0 {
                self.release_during_push(held);
                return false;
            }
            if !self.push(held, GUARDED) || may_write_plain && !self.push(held, PLAIN) {
                return false;
            }
            self.think();
        }
        true
    }

    /// The next holder may write while a server that checks first and writes later has not written yet.
    fn release_during_push(&mut self, held: &HeldLock<'_>) {
        let mut releaser = self.lock_client.with_new_connection();
        thread::scope(|scope| {
            scope.spawn(|| releaser.release(held.key, Some(held.fence), true, None));
            self.push(held, GUARDED);
        });
    }

    /// Returns whether the owner may go on.
    fn push(&mut self, held: &HeldLock<'_>, list: &str) -> bool {
        let is_outdated = list == GUARDED && self.rng.u8(..OUTDATED_ONE_IN) == 0;
        self.writes += 1;
        let element = Element {
            fence: if is_outdated {
                self.outdated_fence
            } else {
                held.fence
            },
            number: self.writes,
        };
        let list = format!("{{{}}}{list}", held.key);
        let op = self.lock_client.push(held.key, Push { list, element });
        if op.is_some_and(|op| op.reply.is_unknown()) {
            self.on_disconnect();
            return self.workload.keeps_owner;
        }
        true
    }

    /// Sleeps past a deadline, long enough for others to get the lock and write.
    fn stop_past(&mut self, deadline: Micros) {
        let more = Duration::from_millis(self.rng.u64(..=self.workload.lease_ms.end() / 2));
        thread::sleep(Duration::from_micros(deadline.saturating_sub(now())) + more);
    }

    fn reenter(&mut self, held: &HeldLock<'_>) -> Option<Op> {
        let request = Acquire {
            wait: Wait::No,
            reqid: None,
            ..self.new_request(held.limit)
        };
        self.lock_client.acquire(held.key, request)
    }

    fn extend(&mut self, held: &HeldLock<'_>, fence: Option<u64>) -> Option<Op> {
        let lease_ms = self.rng.u64(self.workload.lease_ms.clone());
        self.lock_client.extend(held.key, lease_ms, fence)
    }

    /// Releases in one of several ways, or forgets to.
    fn release(&mut self, held: &HeldLock<'_>) {
        if self.rng.u32(..self.workload.skip_release_one_in) == 0 {
            return;
        }
        self.gate.pass();
        let fence = (self.rng.u8(..3) > 0).then_some(held.fence);
        let op = match &held.reqid {
            Some(id) if self.rng.bool() => self.lock_client.release(held.key, fence, false, Some(id.clone())),
            _ => self.lock_client.release(held.key, fence, true, None),
        };
        match op {
            Some(op) if op.reply.is_unknown() => self.on_disconnect(),
            // Release the re-entrant holds too.
            Some(Op {
                reply: Reply::Remaining(1..),
                ..
            }) => _ = self.lock_client.release(held.key, fence, true, None),
            _ => {}
        }
    }

    fn on_disconnect(&mut self) {
        if !self.workload.keeps_owner {
            self.switch_owner();
        }
    }

    /// Continues as a new owner: the last request may still be executed.
    fn switch_owner(&mut self) {
        self.generation += 1;
        self.lock_client.owner = format!("{}.{}", self.name, self.generation);
    }

    fn think(&mut self) {
        thread::sleep(Duration::from_millis(
            self.rng.u64(self.workload.think_ms.clone()),
        ));
    }

    fn back_off(&mut self) {
        thread::sleep(Duration::from_millis(self.rng.u64(1..=10)));
    }
}
