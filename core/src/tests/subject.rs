//! The core driven by `ops`: a server with locks and their queues, which drives `Transition` as the shell does.
//!
//! The invariants are checked after every transition made here, so every test checks them.

use std::collections::BTreeMap;

use super::invariants::{self, Cause, Checked, Snapshot};
use super::naive;
use super::ops::{self, Action, Answer as OpsAnswer, Ask, Block, Client, Limit as OpsLimit};
use super::ops::{LockView, Micros, Reply, Request, Undelivered, View};
use crate::codec::{decode_lock, encode_lock};
use crate::context::TransitionContext;
use crate::deadlock::Cycle;
use crate::effects::{Answer, Effects, Replication, Wake};
use crate::engine::Engine;
use crate::error::Error;
use crate::fence::{AdvanceReason, Fence, WallClock};
use crate::limit::Limit;
use crate::lock::{Holder, Lock};
use crate::name::LockName;
use crate::outcome::{Acquired, Event, Granted};
use crate::queue::{Queue, Waiter};
use crate::request::{Acquire, Extend, GrantRef, Holds, Release, Timeout};
use crate::ticket::Ticket;
use crate::time::Instant;
use crate::transition::Transition;
use crate::wait_table::WaitPolicy;

/// The names of the locks of [`Server::new`].
pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Owners of different lengths: none may be mistaken for the prefix of another.
const OWNERS: [&[u8]; 5] = [b"a", b"ab", b"alice", b"\0", b"bob"];
/// A wall clock in 2025, so that fences have as many bytes as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
/// What the clock of a server shows at 0, unless the test says otherwise.
pub const ORIGIN: Micros = 123_456;
/// A server that cannot grant now retries after this time.
pub const RETRY_MS: u64 = 50;

#[derive(Debug)]
pub struct Server {
    pub engine: Engine,
    /// The value of each name; free = no key.
    pub locks: Vec<(LockName, Lock)>,
    pub effects: Effects,
    /// The answers to waiters, oldest first, until they are delivered.
    pub answers: Vec<(Ticket, Answer)>,
    pub cx: TransitionContext,
    pub policy: WaitPolicy,
    /// What the clock of this server shows at 0.
    pub origin: Micros,
    clients: BTreeMap<Ticket, Client>,
    replies: Vec<(Client, Reply)>,
    sent: Vec<Sent>,
}

/// What becomes of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(Granted),
    NotGranted,
    Waits(Ticket),
}

/// What a transition replicates.
#[derive(Clone, Debug)]
pub enum Record {
    Verbatim(Request),
    Change(Vec<u8>),
}

/// A command that replicas and the append-only file get for a lock, and the lock after it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub lock: usize,
    pub command: Command,
    pub after: Vec<(Stored, Micros)>,
}

#[derive(Clone, Debug)]
pub enum Command {
    /// A transition, and the events that it published.
    Transition(Record, Vec<Event>),
    /// DEL
    Delete,
    /// RENAME, from that name
    RenameFrom(usize),
    /// RESTORE REPLACE
    Restore(Vec<u8>),
    /// A grace period of this many milliseconds starts.
    Grace(u64),
}

/// An RDB file. Grace period and fence counter belong to no lock: they are stored beside the locks.
#[derive(Clone, Debug)]
pub struct Saved {
    locks: Vec<Option<Vec<u8>>>,
    fence: Fence,
    grace_left_ms: u64,
}

/// A holder as it is stored, expired or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub owner: Vec<u8>,
    pub fence: Fence,
    pub limit: Limit,
    pub unnamed: u32,
    pub names: Vec<Box<[u8]>>,
}

impl Server {
    /// A server whose locks are free, with the first of [`KEYS`], and a clock that shows `origin` at 0.
    pub fn new(locks: usize, origin: Micros) -> Self {
        let mut server = Self::with(&KEYS[..locks]);
        server.origin = origin;
        server.set_now(0);
        server
    }

    /// A server whose locks are free, with these names.
    pub fn with(locks: &[&str]) -> Self {
        let mut engine = Engine::starting();
        engine.advance_fences_if_due(Instant::default(), WallClock::from_unix_ms(UNIX_MS), 0);
        let name = |key: &&str| LockName {
            db: 0,
            key: key.as_bytes().into(),
        };
        Self {
            engine,
            locks: locks.iter().map(|key| (name(key), Lock::default())).collect(),
            effects: Effects::default(),
            answers: Vec::new(),
            cx: TransitionContext::at(Instant::from_micros(ORIGIN)),
            policy: WaitPolicy {
                max_waiters: 10_000,
                detect_deadlocks: true,
            },
            origin: ORIGIN,
            clients: BTreeMap::new(),
            replies: Vec::new(),
            sent: Vec::new(),
        }
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.cx.now = self.cx.now.after_ms(ms);
    }

    pub fn pass(&mut self, micros: Micros) {
        self.set_now(self.now() + micros);
    }

    /// A grace period starts, or the one that runs becomes longer.
    pub fn grace(&mut self, ms: u64) {
        self.extend_grace(ms, self.cx.now);
    }

    fn extend_grace(&mut self, ms: u64, begin: Instant) {
        if ms > 0 {
            if self.cx.grace_end <= self.cx.now {
                self.cx.grace_begin = begin;
            }
            self.cx.grace_end = self.cx.grace_end.max(self.cx.now.after_ms(ms));
        }
    }

    /// Becomes a primary: advances the fence counter and starts a grace period.
    pub fn take_over(&mut self, reason: AdvanceReason, grace_ms: u64) {
        let last = self.engine.fences.last();
        self.engine.fences.request_advance(reason);
        self.engine.fences.advance(WallClock::from_unix_ms(UNIX_MS), last);
        assert!(self.engine.fences.last() >= last);
        self.grace(grace_ms);
    }

    pub fn save(&self) -> Saved {
        let lock = |(_, lock): &(LockName, Lock)| (!lock.is_free()).then(|| encode_lock(lock, &self.cx));
        Saved {
            locks: self.locks.iter().map(lock).collect(),
            fence: self.engine.fences.known(),
            grace_left_ms: self.cx.now.ms_until_rounded_up(self.cx.grace_end),
        }
    }

    /// A server that loads what was stored, at `now`.
    pub fn load(saved: &Saved, now: Micros, origin: Micros) -> Self {
        let mut server = Self::new(saved.locks.len(), origin);
        server.set_now(now);
        for ((_, lock), bytes) in server.locks.iter_mut().zip(&saved.locks) {
            if let Some(bytes) = bytes {
                *lock = decode_lock(bytes, server.cx.now).expect("a lock that was encoded");
            }
        }
        server.engine.fences.observe(saved.fence);
        server.grace(saved.grace_left_ms);
        server
    }

    /// On a replica, or while the append-only file is loaded: executes a command of the primary. Expired holders
    /// are not removed here.
    pub fn receive(&mut self, sent: &Sent) {
        self.effects.clear();
        match &sent.command {
            Command::Transition(record, _) => self.apply(sent.lock, record),
            Command::Delete => self.locks[sent.lock].1 = Lock::default(),
            Command::RenameFrom(from) => {
                let renamed = std::mem::take(&mut self.locks[*from].1);
                self.locks[sent.lock].1 = renamed;
            }
            Command::Restore(bytes) => {
                let lock = decode_lock(bytes, self.cx.now).expect("a lock that the primary decoded");
                self.locks[sent.lock].1 = lock;
            }
            Command::Grace(ms) => self.extend_grace(*ms, Instant::DISTANT_PAST),
        }
    }

    pub fn apply(&mut self, lock: usize, record: &Record) {
        self.effects.clear();
        let (name, lock) = &mut self.locks[lock];
        let mut transition = self
            .engine
            .begin(name.as_ref(), lock, &self.cx, &mut self.effects);
        match record {
            Record::Verbatim(request) => {
                with_release(request, |request| transition.apply_release(request))
                    .expect("a release that the primary executed");
            }
            Record::Change(change) => {
                let admitted = transition
                    .apply(change)
                    .expect("a change that the primary encoded");
                assert_eq!(admitted, self.effects.events.contains(&Event::Acquired));
            }
        }
        let known = self.engine.fences.known();
        assert_eq!(
            self.effects.replication,
            Replication::Verbatim,
            "a replica propagates what it received"
        );
        assert!(lock.is_sound(), "{lock:?}");
        assert!(lock.holders().iter().all(|holder| holder.fence() <= known));
    }

    pub fn name(&self, key: &str) -> LockName {
        self.locks[self.place(key)].0.clone()
    }

    pub fn lock(&self, key: &str) -> &Lock {
        &self.locks[self.place(key)].1
    }

    fn place(&self, key: &str) -> usize {
        self.locks
            .iter()
            .position(|(name, _)| *name.key == *key.as_bytes())
            .expect("a lock of this server")
    }

    fn key(&self, lock: usize) -> String {
        String::from_utf8_lossy(&self.locks[lock].0.key).into_owned()
    }

    /// ACQUIRE. Before a request that blocks, all due waiters are processed.
    pub fn acquire(&mut self, key: &str, request: &Acquire<'_>) -> Result<Outcome, Error> {
        if request.block.is_some() {
            self.process_due();
        }
        self.acquire_now(key, request)
    }

    fn acquire_now(&mut self, key: &str, request: &Acquire<'_>) -> Result<Outcome, Error> {
        let policy = self.policy;
        Ok(
            match self.step(
                key,
                Cause::Acquire(request),
                |transition| transition.acquire(request, policy),
                |result| match result {
                    Ok(Acquired::Granted(_)) => invariants::Outcome::Granted,
                    Ok(_) | Err(_) => invariants::Outcome::NotGranted,
                },
            )? {
                Acquired::Granted(granted) => Outcome::Granted(granted),
                Acquired::NotGranted => Outcome::NotGranted,
                Acquired::Queued(enqueued) => {
                    if enqueued.replaced {
                        self.answers
                            .push((enqueued.ticket, Answer::Refused(Error::Replaced)));
                    }
                    Outcome::Waits(enqueued.ticket)
                }
            },
        )
    }

    pub fn release(&mut self, key: &str, owner: &str, share: Holds<'_>) -> Result<u64, Error> {
        self.release_now(
            key,
            &Release {
                owner: owner.as_bytes(),
                fence: None,
                holds: share,
            },
        )
    }

    fn release_now(&mut self, key: &str, request: &Release<'_>) -> Result<u64, Error> {
        self.step(
            key,
            Cause::Release(request),
            |transition| transition.release(request),
            |result| match result {
                Ok(_) => invariants::Outcome::Released,
                Err(_) => invariants::Outcome::NotGranted,
            },
        )
    }

    pub fn extend(
        &mut self,
        key: &str,
        owner: &str,
        lease_ms: u64,
        fence: Option<Fence>,
    ) -> Result<u64, Error> {
        self.extend_now(
            key,
            &Extend {
                owner: owner.as_bytes(),
                lease_ms,
                grant: fence.into(),
            },
        )
    }

    fn extend_now(&mut self, key: &str, request: &Extend<'_>) -> Result<u64, Error> {
        self.step(
            key,
            Cause::Extend(request),
            |transition| transition.extend(request),
            |result| match result {
                Ok(_) => invariants::Outcome::Extended,
                Err(_) => invariants::Outcome::NotGranted,
            },
        )
    }

    /// A client disconnected before its grant reached it.
    pub fn rollback_grant(&mut self, key: &str, owner: &str, fence: Fence, share: Holds<'_>) -> bool {
        self.rollback_now(
            key,
            &Release {
                owner: owner.as_bytes(),
                fence: Some(fence),
                holds: share,
            },
        )
    }

    fn rollback_now(&mut self, key: &str, request: &Release<'_>) -> bool {
        self.step(
            key,
            Cause::Rollback(request),
            |transition| transition.rollback_grant(request),
            |_| invariants::Outcome::Done,
        )
    }

    /// Processes every queue that is due.
    pub fn process_due(&mut self) {
        while let Some(name) = self.engine.wait_table.next_due(self.cx.now) {
            let key = String::from_utf8_lossy(&name.key).into_owned();
            self.fire_timer(&key);
        }
    }

    fn fire_timer(&mut self, key: &str) {
        self.step(
            key,
            Cause::Timer,
            |transition| transition.on_timer(),
            |()| invariants::Outcome::Done,
        );
    }

    /// The client of a waiter disconnects.
    pub fn leave(&mut self, key: &str, ticket: Ticket) {
        let name = self.name(key);
        self.engine.wait_table.remove_waiter(name.as_ref(), ticket);
    }

    /// DEL, RENAME, RESTORE REPLACE: the name has another value, and its queue is due.
    pub fn replace(&mut self, key: &str, lock: Lock) {
        let place = self.place(key);
        self.locks[place].1 = lock;
        self.mark(place);
    }

    fn step<R>(
        &mut self,
        key: &str,
        cause: Cause<'_>,
        step: impl FnOnce(&mut Transition<'_>) -> R,
        outcome: impl FnOnce(&R) -> invariants::Outcome,
    ) -> R {
        let place = self.place(key);
        let before = self.snapshot(place);
        let known_before = self.engine.fences.known();
        let (name, lock) = &mut self.locks[place];
        self.effects.clear();
        let mut transition = self
            .engine
            .begin(name.as_ref(), lock, &self.cx, &mut self.effects);
        let result = step(&mut transition);
        invariants::check(&Checked {
            before: &before,
            known_before,
            cause,
            cx: &self.cx,
            after: &self.snapshot(place),
            known_after: self.engine.fences.known(),
            outcome: outcome(&result),
            effects: &self.effects,
        });
        let wakes = self.effects.wakes.iter().cloned();
        self.answers
            .extend(wakes.map(|Wake { ticket, answer }| (ticket, answer)));
        result
    }

    fn snapshot(&self, place: usize) -> Snapshot {
        let (name, lock) = &self.locks[place];
        let waiters = self
            .engine
            .wait_table
            .queue(name.as_ref())
            .into_iter()
            .flat_map(Queue::iter);
        Snapshot {
            lock: lock.clone(),
            queue: waiters.map(|(ticket, waiter)| (ticket, waiter.clone())).collect(),
        }
    }
}

/// The same with numbers for locks, owners and clients. A queue is only processed when its timer fires.
impl Server {
    /// Returns the cycle if the request was rejected as a deadlock.
    pub fn ask(&mut self, client: Client, ask: &Ask) -> Option<Cycle> {
        let key = self.key(ask.lock);
        let request = &ask.request;
        let owner = owner_bytes(request.owner);
        let mut cycle = None;
        let answer = match request.action {
            Action::Acquire {
                lease_ms,
                limit,
                name,
            } => {
                let name = name.map(name_bytes);
                let request = Acquire {
                    owner,
                    lease_ms,
                    limit: core_limit(limit),
                    block: timeout(ask.block),
                    request_id: name.as_ref().map(|name| &name[..]),
                };
                match self.acquire_now(&key, &request) {
                    Ok(Outcome::Granted(granted)) => {
                        assert_eq!(granted.waited_ms, 0, "an immediate grant has not waited");
                        ops_grant(&granted)
                    }
                    Ok(Outcome::NotGranted) => OpsAnswer::NotGranted,
                    Ok(Outcome::Waits(ticket)) => {
                        self.deliver(ask.lock, None);
                        let former = self.clients.insert(ticket, client);
                        assert_eq!(former, None, "two clients with one ticket");
                        return None;
                    }
                    Err(Error::Deadlock(found)) => {
                        cycle = Some(*found);
                        OpsAnswer::Error("DEADLOCK", 0)
                    }
                    Err(refused) => error(refused),
                }
            }
            Action::Extend { lease_ms, name } => {
                let name = name.map(name_bytes);
                let grant = name
                    .as_ref()
                    .map_or(request.fence.into(), |name| GrantRef::RequestId(name));
                let extend = Extend {
                    owner,
                    lease_ms,
                    grant,
                };
                self.extend_now(&key, &extend)
                    .map_or_else(error, OpsAnswer::Lease)
            }
            _ => with_release(request, |release| self.release_now(&key, release))
                .map_or_else(error, OpsAnswer::Holds),
        };
        self.replies.push((client, Reply::immediate(answer)));
        self.deliver(ask.lock, Some(request));
        cycle
    }

    /// The answer to a request that does not block, on a server whose answers are not collected.
    pub fn request(&mut self, lock: usize, request: &Request) -> OpsAnswer {
        let (request, block) = (*request, Block::No);
        self.ask(0, &Ask { lock, request, block });
        let (_, reply) = self.replies.pop().expect("a request that does not block");
        reply.answer
    }

    /// When the leases of the live holders end, on the clock that all servers share.
    pub fn lease_ends(&self, lock: usize) -> Vec<Micros> {
        let holders = self.locks[lock].1.holders().iter();
        holders
            .filter(|holder| self.cx.is_live(holder))
            .map(|holder| self.cx.lease_end(holder).as_micros() - self.origin)
            .collect()
    }

    /// When the grace period ends, if there was one.
    pub fn grace_end(&self) -> Option<Micros> {
        let end = self.cx.grace_end;
        (end > Instant::DISTANT_PAST).then(|| end.as_micros() - self.origin)
    }

    /// Adds a holder to a state under test. Returns its fence.
    pub fn put_holder(&mut self, lock: usize, holder: &naive::Holder) -> Fence {
        let fence = self.engine.fences.next_fence().expect("a fence");
        let instant = |time: Micros| Instant::from_micros(time + self.origin);
        let (since, lease_end) = (instant(holder.since), instant(holder.lease_end));
        let owner = owner_bytes(holder.owner);
        let mut put = Holder::new(owner, core_limit(holder.limit), fence, since, lease_end);
        for name in &holder.holds {
            match name {
                Some(name) => put.add_with_id(&name_bytes(*name)),
                None => put.add_anonymous(1),
            }
            .expect("few holds");
        }
        self.locks[lock].1.push(put);
        fence
    }

    /// Adds a waiter to a state under test.
    pub fn put_waiter(&mut self, lock: usize, waiter: &ops::Waiter) {
        let name = waiter.name.map(name_bytes);
        let request = Acquire {
            owner: owner_bytes(waiter.owner),
            lease_ms: waiter.lease_ms,
            limit: core_limit(waiter.limit),
            block: timeout(waiter.block),
            request_id: name.as_ref().map(|name| &name[..]),
        };
        let (name, table) = (self.locks[lock].0.as_ref(), &mut self.engine.wait_table);
        let waiter_of = Waiter::new(&request, request.block.expect("a waiter"), self.cx.now);
        let ticket = table
            .insert(name, waiter_of, self.policy.max_waiters)
            .expect("room in the queue")
            .ticket;
        table.sync(name, &self.locks[lock].1, &self.cx);
        self.clients.insert(ticket, waiter.client);
    }

    /// Makes a queue due, if there is one.
    pub fn mark(&mut self, lock: usize) {
        let name = self.locks[lock].0.clone();
        self.engine
            .wait_table
            .schedule(name.as_ref(), Instant::DISTANT_PAST);
    }

    pub fn is_due(&self, lock: usize) -> bool {
        let entry = self.engine.wait_table.entry(self.locks[lock].0.as_ref());
        let alarm = entry.and_then(|entry| entry.next_wakeup);
        alarm.is_some_and(|alarm| alarm <= self.cx.now)
    }

    /// The lock that is due first.
    pub fn due(&mut self) -> Option<usize> {
        let name = self.engine.wait_table.next_due(self.cx.now)?;
        self.locks.iter().position(|(known, _)| *known == name)
    }

    pub fn on_timer(&mut self, lock: usize) {
        self.fire_timer(&self.key(lock));
        self.deliver(lock, None);
    }

    /// A timer fires while the server may not grant: waiters time out, the rest is deferred.
    pub fn defer(&mut self, lock: usize) {
        let (name, mut effects) = (self.locks[lock].0.clone(), Effects::default());
        self.engine
            .wait_table
            .time_out_waiters(name.as_ref(), self.cx.now, &mut effects);
        self.engine
            .wait_table
            .defer(name.as_ref(), self.cx.now.after_ms(RETRY_MS));
        self.answers
            .extend(effects.wakes.into_iter().map(|wake| (wake.ticket, wake.answer)));
        self.deliver_answers();
    }

    pub fn client_leaves(&mut self, lock: usize, client: Client) {
        let ticket = self.clients.iter().find(|(_, other)| **other == client);
        let ticket = *ticket.expect("a client that waits").0;
        self.clients.remove(&ticket);
        self.leave(&self.key(lock), ticket);
    }

    pub fn roll_back(&mut self, hold: &Undelivered) {
        let name = hold.name.map(name_bytes);
        let share = name.as_ref().map_or(Holds::One, |name| Holds::ById(name));
        let request = Release {
            owner: owner_bytes(hold.owner),
            fence: Some(hold.fence),
            holds: share,
        };
        self.rollback_now(&self.key(hold.lock), &request);
        self.deliver(hold.lock, None);
    }

    /// A grace period starts, and is replicated.
    pub fn begin_grace(&mut self, ms: u64) {
        self.grace(ms);
        (0..self.locks.len()).for_each(|lock| self.send(lock, Command::Grace(ms)));
    }

    /// Removes expired holders, as the server does for a lock without waiters.
    pub fn sweep(&mut self, lock: usize) {
        self.step(
            &self.key(lock),
            Cause::Expiry,
            |transition| transition.expire_holders(),
            |()| invariants::Outcome::Done,
        );
        self.record(lock, None);
    }

    /// DEL
    pub fn delete(&mut self, lock: usize) {
        self.replace(&self.key(lock), Lock::default());
        self.send(lock, Command::Delete);
    }

    /// RENAME
    pub fn rename(&mut self, from: usize, to: usize) {
        let value = std::mem::take(&mut self.locks[from].1);
        self.replace(&self.key(from), Lock::default());
        self.replace(&self.key(to), value);
        self.send(to, Command::RenameFrom(from));
    }

    /// DUMP; `None` = no key.
    pub fn dump(&self, lock: usize) -> Option<Vec<u8>> {
        let mut value = self.locks[lock].1.clone();
        value.remove_if(|holder| !self.cx.is_live(holder), |_| {});
        (!value.is_free()).then(|| encode_lock(&value, &self.cx))
    }

    /// RESTORE REPLACE
    pub fn restore(&mut self, lock: usize, bytes: &[u8]) {
        let value = decode_lock(bytes, self.cx.now).expect("what was dumped can be restored");
        self.replace(&self.key(lock), value);
        self.send(lock, Command::Restore(bytes.to_vec()));
    }

    /// All waiters of this lock get this error.
    pub fn drain(&mut self, lock: usize, code: &'static str) {
        for ticket in self.engine.wait_table.drain(self.locks[lock].0.as_ref()) {
            let client = self.clients.remove(&ticket).expect("a waiter");
            self.replies.push((client, Reply::error(code)));
        }
    }

    pub fn now(&self) -> Micros {
        self.cx.now.as_micros() - self.origin
    }

    pub fn set_now(&mut self, now: Micros) {
        self.cx.now = Instant::from_micros(now + self.origin);
    }

    pub fn next_wakeup(&self) -> Option<Micros> {
        let alarm = self.engine.wait_table.next_wakeup()?;
        Some(alarm.as_micros().saturating_sub(self.origin))
    }

    pub fn take_replies(&mut self) -> Vec<(Client, Reply)> {
        std::mem::take(&mut self.replies)
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    pub fn view(&self, lock: usize) -> LockView {
        let Snapshot { lock, queue } = self.snapshot(lock);
        let live = lock.holders().iter().filter(|holder| self.cx.is_live(holder));
        let waiters = queue.iter().map(|(ticket, waiter)| ops::Waiter {
            client: self.clients[ticket],
            owner: owner_number(waiter.owner()),
            limit: waiter.limit.get(),
            lease_ms: waiter.lease_ms,
            name: waiter.request_id.as_deref().map(name_number),
            since: waiter.since.as_micros() - self.origin,
            block: match waiter.timeout {
                Timeout::Infinite => Block::Infinite,
                Timeout::Ms(ms) => Block::Ms(ms),
            },
        });
        LockView {
            holders: live.map(|holder| view_of(holder, &self.cx)).collect(),
            queue: waiters.collect(),
        }
    }

    pub fn stored(&self, lock: usize) -> Vec<(Stored, Micros)> {
        let holders = self.locks[lock].1.holders().iter();
        holders
            .map(|holder| {
                let lease_end = self.cx.lease_end(holder).as_micros() - self.origin;
                (Stored::from(holder), lease_end)
            })
            .collect()
    }

    /// After a transition: replicates it, then replies to clients.
    fn deliver(&mut self, lock: usize, request: Option<&Request>) {
        self.record(lock, request);
        self.deliver_answers();
    }

    fn record(&mut self, lock: usize, request: Option<&Request>) {
        let record = match (self.effects.replication, request) {
            (Replication::Nothing, _) => return,
            (Replication::Verbatim, Some(request)) => Record::Verbatim(*request),
            (Replication::Verbatim | Replication::Change, _) => {
                Record::Change(self.effects.change().to_vec())
            }
        };
        let events = self.effects.events.clone();
        self.send(lock, Command::Transition(record, events));
    }

    fn send(&mut self, lock: usize, command: Command) {
        let after = self.stored(lock);
        self.sent.push(Sent { lock, command, after });
    }

    fn deliver_answers(&mut self) {
        for (ticket, answer) in std::mem::take(&mut self.answers) {
            let client = self.clients.remove(&ticket).expect("a waiter");
            let reply = match answer {
                Answer::Granted(granted) => Reply {
                    answer: ops_grant(&granted),
                    waited_ms: granted.waited_ms,
                },
                Answer::TimedOut | Answer::Withdrawn => Reply::null(),
                Answer::Refused(refusal) => Reply::immediate(error(refusal)),
            };
            self.replies.push((client, reply));
        }
    }
}

fn ops_grant(granted: &Granted) -> OpsAnswer {
    OpsAnswer::Granted {
        fence: granted.fence,
        holds: granted.holds,
        lease_ms: granted.lease_ms,
    }
}

fn timeout(block: Block) -> Option<Timeout> {
    match block {
        Block::No => None,
        Block::Infinite => Some(Timeout::Infinite),
        Block::Ms(ms) => Some(Timeout::Ms(ms)),
    }
}

impl From<&Holder> for Stored {
    fn from(holder: &Holder) -> Self {
        Self {
            owner: holder.owner().to_vec(),
            fence: holder.fence(),
            limit: holder.limit(),
            unnamed: holder.anonymous(),
            names: holder.request_ids().to_vec(),
        }
    }
}

/// A holder, as clients see it.
pub fn view_of(holder: &Holder, cx: &TransitionContext) -> View {
    View {
        owner: owner_number(holder.owner()),
        fence: holder.fence(),
        limit: holder.limit().get(),
        unnamed: u64::from(holder.anonymous()),
        names: holder
            .request_ids()
            .iter()
            .map(|name| name_number(name))
            .collect(),
        lease_ms: cx.lease_ms(holder),
        held_ms: holder.since().ms_until(cx.now),
    }
}

pub fn owner_bytes(owner: u8) -> &'static [u8] {
    OWNERS[usize::from(owner)]
}

pub fn owner_number(owner: &[u8]) -> u8 {
    OWNERS
        .iter()
        .position(|known| *known == owner)
        .expect("a known owner") as u8
}

pub fn name_bytes(name: u8) -> [u8; 2] {
    [b'r', name]
}

pub fn core_limit(limit: OpsLimit) -> Limit {
    limit.map_or(Limit::SHARED, |n| Limit::new(n).expect("a limit"))
}

pub fn name_number(name: &[u8]) -> u8 {
    *name.last().expect("a name")
}

/// Calls `step` with the RELEASE that the request means.
pub fn with_release<T>(request: &Request, step: impl FnOnce(&Release<'_>) -> T) -> T {
    let name;
    let holds = match request.action {
        Action::ReleaseOne => Holds::One,
        Action::ReleaseAll => Holds::All,
        Action::ReleaseNamed(number) => {
            name = name_bytes(number);
            Holds::ById(&name)
        }
        Action::Acquire { .. } | Action::Extend { .. } => panic!("not a RELEASE: {request:?}"),
    };
    step(&Release {
        owner: owner_bytes(request.owner),
        fence: request.fence,
        holds,
    })
}

fn error(rejected: Error) -> OpsAnswer {
    let number = match rejected {
        Error::Stale(fence) | Error::StaleRequestId(fence) => fence,
        Error::Grace(ms) => ms,
        Error::Upgrade(limit) => u64::from(limit.get().unwrap_or(0)),
        Error::TooManyRequestIds(max) | Error::QueueFull(max) => max as u64,
        _ => 0,
    };
    OpsAnswer::Error(rejected.code(), number)
}
