//! The core under test: a server with locks and their queues, which drives `Transition` as the shell does.
//!
//! The invariants are checked after every transition made here, so every test checks them.

use std::collections::BTreeMap;

use super::invariants::{self, Cause, Checked, Snapshot};
use super::naive;
use super::ops::{Answer, Client, HolderView, LockView, Micros, Reply, Request, Waiter};
use crate::codec::{decode_lock, encode_lock};
use crate::context::TransitionContext;
use crate::effects::{self, Effects, Replication};
use crate::engine::Engine;
use crate::error::Error;
use crate::fence::{AdvanceReason, Fence, MAX_FENCE, WallClock};
use crate::lock::{Holder, Lock};
use crate::name::LockName;
use crate::outcome::{Acquired, Event};
use crate::queue::{self, Queue};
use crate::request::{Acquire, Guard, Release};
use crate::ticket::Ticket;
use crate::time::Instant;
use crate::transition::Transition;
use crate::wait_table::WaitPolicy;

/// The names of the locks of [`Server::new`].
pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
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
    pub cx: TransitionContext,
    pub policy: WaitPolicy,
    /// What the clock of this server shows at 0.
    pub origin: Micros,
    clients: BTreeMap<Ticket, Client>,
    pub(super) last_client: Client,
    /// The replies to waiters.
    pub replies: Vec<(Client, Reply)>,
    sent: Vec<Sent>,
}

/// A command that replicas and the append-only file get for a lock, and the lock after it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub lock: usize,
    pub command: Command,
    pub after: Vec<Stored>,
}

#[derive(Clone, Debug)]
pub enum Command {
    /// RELEASE, and the events that it published
    Release(String, Vec<Event>),
    /// DLOCK.APPLY, and the events that it published
    Apply(Vec<u8>, Vec<Event>),
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

/// A holder as it is stored, expired or not: without its times, and when its lease ends.
pub type Stored = (Holder, Micros);

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
        engine.fences.set_quorum(true);
        let free = |key: &&str| (LockName::new(0, key.as_bytes()), Lock::default());
        Self {
            engine,
            locks: locks.iter().map(free).collect(),
            effects: Effects::default(),
            cx: TransitionContext {
                max_min_fence: Some(MAX_FENCE),
                ..TransitionContext::at(Instant::from_micros(ORIGIN))
            },
            policy: WaitPolicy {
                max_waiters: 10_000,
                detect_deadlocks: true,
            },
            origin: ORIGIN,
            clients: BTreeMap::new(),
            last_client: 0,
            replies: Vec::new(),
            sent: Vec::new(),
        }
    }

    pub fn now(&self) -> Micros {
        self.cx.now.as_micros() - self.origin
    }

    pub fn set_now(&mut self, now: Micros) {
        self.cx.now = self.instant(now);
    }

    pub fn pass(&mut self, micros: Micros) {
        self.set_now(self.now() + micros);
    }

    fn instant(&self, time: Micros) -> Instant {
        Instant::from_micros(time + self.origin)
    }

    /// A grace period starts, or the current one becomes longer.
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

    /// Sends a request of a client. Returns the reply, `None` if the request waits.
    pub fn ask(&mut self, client: Client, lock: usize, request: &Request<'_>) -> Option<Reply> {
        let policy = self.policy;
        let reply = self.step(lock, Cause::Request(request), |transition| match request {
            Request::Acquire(request) => Ok(match transition.acquire(request, policy)? {
                Acquired::Granted(granted) => Answer::Granted(granted),
                Acquired::NotGranted => Answer::NotGranted,
                Acquired::Queued(enqueued) => Answer::Queued(enqueued),
            }),
            Request::Release(request) => transition.release(request).map(Answer::Holds),
            Request::Extend(request) => transition.extend(request).map(Answer::Lease),
        });
        match reply {
            Ok(Answer::Queued(enqueued)) => {
                let former = self.clients.insert(enqueued.ticket, client);
                assert_eq!(former.is_some(), enqueued.replaced, "two clients with one ticket");
                self.replies
                    .extend(former.map(|client| (client, Err(Error::Replaced))));
                None
            }
            reply => Some(reply),
        }
    }

    /// A client disconnected before its grant reached it. Returns whether the grant still existed.
    pub fn rollback_grant(&mut self, lock: usize, request: &Release<'_>) -> bool {
        let mut existed = false;
        let rollback = |transition: &mut Transition<'_>| existed = transition.rollback_grant(request);
        self.run(lock, Cause::Rollback(request), rollback);
        existed
    }

    pub fn on_timer(&mut self, lock: usize) {
        self.run(lock, Cause::Timer, |transition| transition.on_timer());
    }

    /// Removes expired holders, as the server does for a lock without waiters.
    pub fn expire_holders(&mut self, lock: usize) {
        self.run(lock, Cause::Expiry, |transition| transition.expire_holders());
    }

    fn run(&mut self, lock: usize, cause: Cause<'_>, transition: impl FnOnce(&mut Transition<'_>)) {
        let reply = self.step(lock, cause, |it| {
            transition(it);
            Ok(Answer::Done)
        });
        assert_eq!(reply, Ok(Answer::Done));
    }

    /// Runs and checks a transition, replicates it, and replies to the waiters that it woke.
    fn step(
        &mut self,
        lock: usize,
        cause: Cause<'_>,
        transition: impl FnOnce(&mut Transition<'_>) -> Reply,
    ) -> Reply {
        let before = self.snapshot(lock);
        let known_before = self.engine.fences.known();
        let (name, value) = &mut self.locks[lock];
        self.effects.clear();
        let cx = &self.cx;
        let reply = transition(&mut self.engine.begin(name.as_ref(), value, cx, &mut self.effects));
        invariants::check(&Checked {
            before: &before,
            known_before,
            cause,
            cx,
            after: &self.snapshot(lock),
            known_after: self.engine.fences.known(),
            reply: &reply,
            effects: &self.effects,
        });
        let events = self.effects.events.clone();
        match (self.effects.replication, cause) {
            (Replication::Nothing, _) => {}
            (Replication::Verbatim, Cause::Request(request)) => {
                self.send(lock, Command::Release(request.to_string(), events));
            }
            _ => self.send(lock, Command::Apply(self.effects.change().to_vec(), events)),
        }
        self.reply_to_waiters();
        reply
    }

    fn snapshot(&self, lock: usize) -> Snapshot {
        let waiters = self
            .waiters(lock)
            .map(|(ticket, waiter)| (ticket, waiter.clone()));
        Snapshot {
            lock: self.locks[lock].1.clone(),
            queue: waiters.collect(),
        }
    }

    fn waiters(&self, lock: usize) -> impl Iterator<Item = (Ticket, &queue::Waiter)> {
        let queue = self.engine.wait_table.queue(self.locks[lock].0.as_ref());
        queue.into_iter().flat_map(Queue::iter)
    }

    fn send(&mut self, lock: usize, command: Command) {
        let after = self.stored(lock);
        self.sent.push(Sent { lock, command, after });
    }

    fn reply_to_waiters(&mut self) {
        for wake in std::mem::take(&mut self.effects.wakes) {
            let client = self.clients.remove(&wake.ticket).expect("a waiter");
            let reply = match wake.answer {
                effects::Answer::Granted(granted) => Ok(Answer::Granted(granted)),
                effects::Answer::TimedOut | effects::Answer::Withdrawn => Ok(Answer::NotGranted),
                effects::Answer::Refused(error) => Err(error),
            };
            self.replies.push((client, reply));
        }
    }

    /// The lock that is due first.
    pub fn due(&self) -> Option<usize> {
        let name = self.engine.wait_table.next_due(self.cx.now)?;
        self.locks.iter().position(|(known, _)| *known == name)
    }

    pub fn is_due(&self, lock: usize) -> bool {
        let entry = self.engine.wait_table.entry(self.locks[lock].0.as_ref());
        let wakeup = entry.and_then(|entry| entry.next_wakeup);
        wakeup.is_some_and(|wakeup| wakeup <= self.cx.now)
    }

    pub fn process_due(&mut self) {
        while let Some(lock) = self.due() {
            self.on_timer(lock);
        }
    }

    /// A timer fires while the server may not grant: waiters time out, the rest is deferred.
    pub fn defer(&mut self, lock: usize) {
        let (name, table) = (self.locks[lock].0.as_ref(), &mut self.engine.wait_table);
        self.effects.clear();
        table.time_out_waiters(name, self.cx.now, &mut self.effects);
        table.defer(name, self.cx.now.after_ms(RETRY_MS));
        self.reply_to_waiters();
    }

    /// The client of a waiter disconnects.
    pub fn disconnect(&mut self, client: Client) {
        let ticket = self.clients.iter().find(|(_, other)| **other == client);
        let ticket = *ticket.expect("a client that waits").0;
        self.clients.remove(&ticket);
        for (name, _) in &self.locks {
            self.engine.wait_table.remove_waiter(name.as_ref(), ticket);
        }
    }

    /// All waiters of this lock get an error.
    pub fn drain(&mut self, lock: usize) {
        for ticket in self.engine.wait_table.drain(self.locks[lock].0.as_ref()) {
            let client = self.clients.remove(&ticket).expect("a waiter");
            self.replies.push((client, Err(Error::Replaced)));
        }
    }

    /// A grace period starts, and is replicated.
    pub fn begin_grace(&mut self, ms: u64) {
        self.grace(ms);
        (0..self.locks.len()).for_each(|lock| self.send(lock, Command::Grace(ms)));
    }

    /// The name has another value, and its queue is due.
    pub fn replace(&mut self, lock: usize, value: Lock) {
        self.locks[lock].1 = value;
        self.mark_due(lock);
    }

    /// Makes a queue due, if there is one.
    pub fn mark_due(&mut self, lock: usize) {
        let name = self.locks[lock].0.as_ref();
        self.engine.wait_table.schedule(name, Instant::DISTANT_PAST);
    }

    /// DEL
    pub fn delete(&mut self, lock: usize) {
        self.replace(lock, Lock::default());
        self.send(lock, Command::Delete);
    }

    /// RENAME
    pub fn rename(&mut self, from: usize, to: usize) {
        let value = std::mem::take(&mut self.locks[from].1);
        self.mark_due(from);
        self.replace(to, value);
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
        self.engine.observe_lock(&value, &self.cx);
        self.replace(lock, value);
        self.send(lock, Command::Restore(bytes.to_vec()));
    }

    /// On a replica, or while the append-only file is loaded: executes a command of the primary. Expired holders
    /// are not removed here.
    pub fn receive(&mut self, lock: usize, command: &Command) {
        self.effects.clear();
        match command {
            Command::Release(request, _) => {
                let Request::Release(request) = Request::parse(request) else {
                    panic!("{request} is propagated verbatim")
                };
                self.apply(lock, |transition| transition.apply_release(&request).map(|_| ()));
            }
            Command::Apply(change, _) => {
                let mut admitted = false;
                self.apply(lock, |transition| {
                    transition.apply(change).map(|any| admitted = any)
                });
                assert_eq!(admitted, self.effects.events.contains(&Event::Acquired));
            }
            Command::Delete => self.locks[lock].1 = Lock::default(),
            Command::RenameFrom(from) => self.locks[lock].1 = std::mem::take(&mut self.locks[*from].1),
            Command::Restore(bytes) => {
                self.locks[lock].1 =
                    decode_lock(bytes, self.cx.now).expect("a lock that the primary decoded");
            }
            Command::Grace(ms) => self.extend_grace(*ms, Instant::DISTANT_PAST),
        }
    }

    fn apply(&mut self, lock: usize, transition: impl FnOnce(&mut Transition<'_>) -> Result<(), Error>) {
        let (name, value) = &mut self.locks[lock];
        let name = name.as_ref();
        transition(&mut self.engine.begin(name, value, &self.cx, &mut self.effects))
            .expect("a command of the primary");
        let propagated = self.effects.replication;
        assert_eq!(
            propagated,
            Replication::Verbatim,
            "a replica propagates what it received"
        );
        let known = self.engine.fences.known();
        assert!(value.is_sound(), "{value:?}");
        assert!(value.holders().iter().all(|holder| holder.fence() <= known));
    }

    /// Adds a holder to a state under test. It gets the next fence.
    pub fn put_holder(&mut self, lock: usize, holder: &naive::Holder) -> Fence {
        let name = self.locks[lock].0.as_ref();
        let fence = self.engine.fences.next_fence(name, None).expect("a fence");
        let (since, lease_end) = (self.instant(holder.since), self.instant(holder.lease_end));
        let mut put = Holder::new(holder.owner, holder.limit, fence, since, lease_end);
        for id in &holder.holds {
            match id {
                Some(id) => put.add_with_id(id),
                None => put.add_anonymous(1),
            }
            .expect("few holds");
        }
        self.locks[lock].1.push(put);
        fence
    }

    /// Adds a waiter to a state under test.
    pub fn put_waiter(&mut self, lock: usize, client: Client, request: &Acquire<'_>) {
        let (name, table) = (self.locks[lock].0.as_ref(), &mut self.engine.wait_table);
        let waiter = queue::Waiter::new(request, request.block.expect("a waiter"), self.cx.now);
        let enqueued = table.insert(name, waiter, self.policy);
        table.sync(name, &self.locks[lock].1, &self.cx);
        self.clients
            .insert(enqueued.expect("room in the queue").ticket, client);
    }

    /// When the leases of the live holders end, on the clock that all servers share.
    pub fn lease_ends(&self, lock: usize) -> Vec<Micros> {
        let live = self.locks[lock]
            .1
            .holders()
            .iter()
            .filter(|holder| self.cx.is_live(holder));
        live.map(|holder| self.cx.lease_end(holder).as_micros() - self.origin)
            .collect()
    }

    /// When the grace period ends, if there was one.
    pub fn grace_end(&self) -> Option<Micros> {
        let end = self.cx.grace_end;
        (end > Instant::DISTANT_PAST).then(|| end.as_micros() - self.origin)
    }

    pub fn next_wakeup(&self) -> Option<Micros> {
        let wakeup = self.engine.wait_table.next_wakeup()?;
        Some(wakeup.as_micros().saturating_sub(self.origin))
    }

    pub fn take_replies(&mut self) -> Vec<(Client, Reply)> {
        std::mem::take(&mut self.replies)
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    pub fn view(&self, lock: usize) -> LockView<'_> {
        let live = self.locks[lock]
            .1
            .holders()
            .iter()
            .filter(|holder| self.cx.is_live(holder));
        let waiters = self.waiters(lock).map(|(ticket, waiter)| Waiter {
            client: self.clients[&ticket],
            since: waiter.since.as_micros() - self.origin,
            request: Acquire {
                owner: waiter.owner(),
                lease_ms: waiter.lease_ms,
                limit: waiter.limit,
                block: Some(waiter.timeout),
                request_id: waiter.request_id.as_deref(),
                min_fence: waiter.min_fence,
            },
        });
        LockView {
            holders: live.map(|holder| HolderView::of(holder, &self.cx)).collect(),
            queue: waiters.collect(),
        }
    }

    pub fn guard(&self, lock: usize, request: &Guard<'_>) -> Result<u64, Error> {
        request.check(&self.locks[lock].1, &self.cx)
    }

    pub fn stored(&self, lock: usize) -> Vec<Stored> {
        let stored = |holder: &Holder| {
            let lease_end = self.cx.lease_end(holder).as_micros() - self.origin;
            let mut holder = holder.clone();
            (holder.since, holder.lease_end) = (Instant::DISTANT_PAST, Instant::DISTANT_PAST);
            (holder, lease_end)
        };
        self.locks[lock].1.holders().iter().map(stored).collect()
    }
}
