//! The core under test: a server with locks and their queues, on the module's own engine.
//!
//! The invariants are checked after every transition made here, so every test checks them.

use std::collections::BTreeMap;

use super::invariants::{self, Cause, Checked, Snapshot};
use super::naive;
use super::ops::{Answer, Client, HolderView, LockView, Micros, Reply, Request, Waiter, block};
use crate::effects::{self, Effects};
use crate::engine::{self, Host, Process, WriteCheck, answering, decide, process_lock, scheduler};
use crate::fence::Fence;
use crate::inbox::{self, Received};
use crate::lock::{Holder, Lock, decode_lock, encode_lock};
use crate::memory::{self, Clocks, Memory};
use crate::names::{Call, LockName, Ticket};
use crate::time::{GraceLength, GraceSettings, Instant, LeaseClock};
use crate::transition::{Checkpoint, Policy, ServerState, Transition};
use crate::waiting::{self, Queue, Room};
use crate::wire::{Acquire, Acquired, Caller, Error, Event, Grants, Guard, Release};

/// The names of the locks of [`Server::new`].
pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// What the clock of a server shows at 0, unless the test says otherwise.
pub const ORIGIN: Micros = 123_456;
/// A time in 2025, so that fences have as many digits as real ones.
pub const IN_2025_UNIX_MS: u64 = 1_750_000_000_000;
/// A server that cannot grant now retries after this time.
pub const RETRY_MS: u64 = 50;

#[derive(Debug)]
pub struct Server {
    pub(crate) host: Memory,
    pub names: Vec<LockName>,
    /// Those of the last transition that have been carried out.
    pub effects: Box<Effects>,
    /// What a name without a key has.
    free: Lock,
    /// What the clock of this server shows at 0.
    pub origin: Micros,
    clients: BTreeMap<Call, Client>,
    pub last_client: Client,
    /// The replies to waiters.
    pub replies: Vec<(Client, Reply)>,
    /// The calls of readers of inboxes that are to be replied to.
    pub woken: Vec<Call>,
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
    /// DLOCK.APPLY, and the events that it published
    Apply(Vec<u8>, Vec<Event>),
    /// DEL
    Delete,
    /// RENAME, from that name
    RenameFrom(usize),
    /// RESTORE REPLACE
    Restore(Vec<u8>),
    /// DLOCK.SYNC, of no lock: the fence counter has advanced, or a grace period starts.
    Sync(Checkpoint),
}

/// An RDB file, and the names of the locks, of which some may be free.
#[derive(Clone, Debug)]
pub struct Saved {
    names: Vec<LockName>,
    snapshot: memory::Snapshot,
}

/// A holder as it is stored, expired or not: without its times, and when its lease ends.
pub type Stored = (Holder, Micros);

impl Server {
    /// A server whose locks are free, with the first of [`KEYS`] in two databases, and a clock that shows `origin` at 0.
    pub fn new(locks: usize, origin: Micros) -> Self {
        let dbs = [0, 1].into_iter().cycle();
        let names = KEYS.iter().zip(dbs).take(locks);
        let names = names.map(|(key, db)| LockName::new(db, key.as_bytes()));
        let mut server = Self::starting(names, origin);
        server.start(0);
        server
    }

    /// A server whose locks are free, with these names.
    pub fn with(locks: &[&str]) -> Self {
        let names = locks.iter().map(|key| LockName::new(0, key.as_bytes()));
        let mut server = Self::starting(names, ORIGIN);
        server.start(0);
        server
    }

    /// A server before [`Server::start`].
    fn starting(names: impl Iterator<Item = LockName>, origin: Micros) -> Self {
        let mut server = Self {
            host: Memory::default(),
            names: names.collect(),
            effects: Box::default(),
            free: Lock::default(),
            origin,
            clients: BTreeMap::new(),
            last_client: 0,
            replies: Vec::new(),
            woken: Vec::new(),
            sent: Vec::new(),
        };
        server.set_now(0);
        // With this grace period, which never starts, any MINFENCE is accepted.
        let any = GraceLength::Ms(u64::MAX);
        server.set_policy(|policy| {
            *policy = Policy {
                max_waiters_per_lock: 10_000,
                max_waiters: usize::MAX,
                max_inboxes: usize::MAX,
                is_quorum: true,
                graces: GraceSettings {
                    startup: any,
                    failover: any,
                },
                detect_deadlocks: true,
                ..Policy::default()
            };
        });
        server
    }

    pub fn set_policy(&mut self, change: impl FnOnce(&mut Policy)) {
        let mut policy = *self.state().policy();
        change(&mut policy);
        self.state_mut().set_policy(policy);
    }

    pub fn state(&self) -> &ServerState {
        &self.host.engine().server
    }

    pub fn state_mut(&mut self) -> &mut ServerState {
        &mut self.host.state().server
    }

    /// The value of a name; free = no key.
    pub fn lock_at(&self, lock: usize) -> &Lock {
        self.host.lock(&self.names[lock]).unwrap_or(&self.free)
    }

    pub fn clock(&self) -> LeaseClock {
        self.state().clock(self.instant_now())
    }

    pub fn now(&self) -> Micros {
        self.instant_now().as_micros() - self.origin
    }

    fn instant_now(&self) -> Instant {
        self.host.clocks.now
    }

    pub fn set_now(&mut self, now: Micros) {
        self.host.clocks = Clocks {
            now: self.instant(now),
            // The wall clock of all servers.
            unix_ms: IN_2025_UNIX_MS + now as u64 / 1_000,
            random: 0,
        };
    }

    pub fn pass(&mut self, micros: Micros) {
        self.set_now(self.now() + micros);
    }

    fn instant(&self, time: Micros) -> Instant {
        Instant::from_micros(time + self.origin)
    }

    /// A grace period starts, or the current one becomes longer.
    pub fn grace(&mut self, ms: u64) {
        let now = self.instant_now();
        self.state_mut().grace.restore(ms, now);
    }

    /// Begins to decide, with a grace period of this length. Returns what [`Server::tick`] does.
    pub fn start(&mut self, grace_ms: u64) -> bool {
        let (known, policy) = (self.state().fences.known(), *self.state().policy());
        let length = GraceLength::Ms(grace_ms);
        let (startup, failover) = (length, length);
        self.set_policy(|policy| policy.graces = GraceSettings { startup, failover });
        let has_advanced = self.tick();
        self.state_mut().set_policy(policy);
        // Replicas begin with what it has now.
        self.sent.clear();
        assert!(
            self.state().fences.known() >= known,
            "the fence counter went backwards"
        );
        has_advanced
    }

    /// As [`Server::start`], for a replica that becomes the primary.
    pub fn promote(&mut self, grace_ms: u64) -> bool {
        self.state_mut().promote();
        self.start(grace_ms)
    }

    /// What the cron does. Returns whether the fence counter has advanced, as it has to after a start or a promotion.
    pub fn tick(&mut self) -> bool {
        let was_pending = self.state().fences.is_advance_pending();
        let clocks = self.host.clocks;
        self.state_mut().tick(&clocks.inputs());
        let has_advanced = was_pending && !self.state().fences.is_advance_pending();
        if has_advanced {
            self.send(0, Command::Sync(self.state().checkpoint(clocks.now)));
        }
        has_advanced
    }

    pub fn save(&self) -> Saved {
        Saved {
            names: self.names.clone(),
            snapshot: self.host.save(),
        }
    }

    /// A server that loads what was stored, at `now`: a replica, or one that is to [start](Server::start).
    pub fn load(saved: &Saved, now: Micros, origin: Micros) -> Self {
        let mut server = Self::starting(saved.names.iter().cloned(), origin);
        server.set_now(now);
        server
            .host
            .restore(&saved.snapshot)
            .expect("locks that were encoded");
        server
    }

    /// Sends a request of a client. Returns the reply, `None` if its client waits.
    pub fn ask(&mut self, client: Client, lock: usize, request: &Request<'_>) -> Option<Reply> {
        let reply = self.step(lock, Cause::Request(request), |transition| match request {
            Request::Acquire(request) => Ok(match transition.acquire(request, b"")? {
                Acquired::Granted(granted) => Answer::Granted(granted),
                Acquired::NotGranted => Answer::NotGranted,
                Acquired::Queued(ahead) => Answer::Queued(ahead),
            }),
            Request::Release(request) => transition.release(request).map(Answer::Holds),
            Request::Extend(request) => transition.extend(request).map(Answer::Lease),
        });
        let Some(call) = self.host.take_parked() else {
            return Some(reply);
        };
        let former = self.clients.insert(call, client);
        assert_eq!(former, None, "two clients with one inbox");
        None
    }

    /// Sends a GRANTS. Its client is blocked if it waits.
    pub fn grants(&mut self, request: &Grants<'_>, caller: Caller<'_>) -> Result<Received, Error> {
        let clocks = self.host.clocks;
        let received = self.state_mut().receive(request, caller, &clocks.inputs());
        if let Ok(Received::Waits { call, .. }) = received {
            self.host.block(call);
            self.host.take_parked();
        }
        received
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
        self.tick();
        let before = self.snapshot(lock);
        let known_before = self.state().fences.known();
        let is_blocking = matches!(cause, Cause::Request(request) if request.blocks());
        let check = |transition: &Transition<'_>, reply: &Reply| {
            let (state, name, value, effects) = transition.parts();
            assert_eq!(
                effects.parked.is_some(),
                is_blocking && matches!(reply, Ok(Answer::Queued(_))),
                "only a request that blocks and waits is parked"
            );
            invariants::check(&Checked {
                before: &before,
                known_before,
                cause,
                clock: effects.clock,
                evictable: state.policy().evictable,
                max_holders: state.policy().max_holders,
                after: &Snapshot::of(name, value, &state.wait_table, effects.clock.now),
                known_after: state.fences.known(),
                reply,
                effects,
            });
        };
        let is_client = matches!(cause, Cause::Request(_));
        let cause = if is_client {
            engine::Cause::Client
        } else {
            engine::Cause::Timer
        };
        let mut events = Vec::new();
        let reply = self.decide(lock, cause, |it| {
            let reply = transition(it);
            check(it, &reply);
            events.clone_from(&it.parts().3.events);
            reply
        });
        self.take_effects();
        self.send_stream(lock, &events);
        self.reply_to_waiters();
        reply
    }

    fn decide(
        &mut self,
        lock: usize,
        cause: engine::Cause,
        transition: impl FnOnce(&mut Transition<'_>) -> Reply,
    ) -> Reply {
        let name = self.select(lock);
        let flags = self.host.flags;
        let max_answers = self.effects.max_answers;
        self.host.state().effects_scratch = Some(std::mem::take(&mut self.effects));
        self.effects.max_answers = max_answers;
        match decide(&mut self.host, &name.key, flags, cause, transition) {
            Ok(answer) => Ok(answer),
            Err(engine::Error::Rejected(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    fn select(&mut self, lock: usize) -> LockName {
        let name = self.names[lock].clone();
        assert!(self.host.select_db(name.db), "a database");
        name
    }

    /// Those of the last transition, whose answers are delivered. The engine does not keep those of many waiters.
    fn take_effects(&mut self) {
        if let Some(effects) = self.host.state().effects_scratch.take() {
            self.effects = effects;
        }
    }

    /// What the engine has replicated.
    fn send_stream(&mut self, lock: usize, events: &[Event]) {
        for sent in std::mem::take(&mut self.host.stream) {
            match sent {
                memory::Sent::Change(_, change) => {
                    self.send(lock, Command::Apply(change, events.to_vec()));
                }
                memory::Sent::Checkpoint(checkpoint, _) => self.send(0, Command::Sync(checkpoint)),
                memory::Sent::Verbatim => panic!("a decision that is not encoded"),
            }
        }
    }

    fn snapshot(&self, lock: usize) -> Snapshot {
        let (name, table) = (self.names[lock].as_ref(), &self.state().wait_table);
        Snapshot::of(name, self.lock_at(lock), table, self.instant_now())
    }

    /// Whether the last transition had more waiters to answer than one may.
    pub fn is_cut(&self, lock: usize) -> bool {
        let queue = self.state().wait_table.queue(self.names[lock].as_ref());
        queue.is_some_and(|queue| queue.is_cut)
    }

    fn waiters(&self, lock: usize) -> impl Iterator<Item = (Ticket, &waiting::Waiter)> {
        let queue = self.state().wait_table.queue(self.names[lock].as_ref());
        queue.into_iter().flat_map(Queue::iter)
    }

    fn send(&mut self, lock: usize, command: Command) {
        let after = self.stored(lock);
        self.sent.push(Sent { lock, command, after });
    }

    fn reply_to_waiters(&mut self) {
        for call in self.host.take_woken() {
            let Some(client) = self.clients.remove(&call) else {
                self.woken.push(call);
                continue;
            };
            let Some(inbox::Reply::Answer(answer)) = answering::reply(&mut self.host, call) else {
                panic!("a waiter has no answer");
            };
            let reply = match answer {
                effects::Answer::Granted(granted) => Ok(Answer::Granted(granted)),
                effects::Answer::Extended(lease_ms) => Ok(Answer::Lease(lease_ms)),
                effects::Answer::TimedOut | effects::Answer::Withdrawn => Ok(Answer::NotGranted),
                effects::Answer::Rejected(error) => Err(error),
                // A request that was replaced and one whose lock has left are the same to the model.
                effects::Answer::Elsewhere(_) => Err(Error::Replaced),
            };
            self.replies.push((client, reply));
        }
    }

    /// The lock that is due first.
    pub fn due(&mut self) -> Option<usize> {
        let now = self.instant_now();
        let name = self.state_mut().wait_table.next_due(now)?;
        self.names.iter().position(|known| *known == name)
    }

    pub fn is_due(&self, lock: usize) -> bool {
        let entry = self.state().wait_table.entry(self.names[lock].as_ref());
        let wakeup = entry.and_then(|entry| entry.next_wakeup);
        wakeup.is_some_and(|wakeup| wakeup <= self.instant_now())
    }

    pub fn process_due(&mut self) {
        while let Some(lock) = self.due() {
            self.on_timer(lock);
        }
    }

    /// A timer fires while the server may not grant: waiters time out, the rest is deferred.
    pub fn defer(&mut self, lock: usize) {
        self.process_refused(lock, WriteCheck::Later);
    }

    fn process_refused(&mut self, lock: usize, refusal: WriteCheck) {
        let name = self.select(lock);
        self.host.refusal = Some(refusal);
        let flags = self.host.flags;
        process_lock(&mut self.host, &name, &name.key, flags);
        self.host.refusal = None;
        self.reply_to_waiters();
    }

    /// Does all that is due, as the timer does: inboxes, rollbacks, queues. Returns the calls that get their replies, but
    /// those of clients.
    pub fn run_due(&mut self) -> Vec<Call> {
        scheduler::on_wait_timer(&mut self.host);
        let before = self.woken.len();
        self.reply_to_waiters();
        self.host.stream.clear();
        self.woken.split_off(before)
    }

    /// The client of a waiter disconnects.
    pub fn disconnect(&mut self, client: Client) {
        let call = self.clients.iter().find(|(_, other)| **other == client);
        let call = *call.expect("a client that waits").0;
        self.clients.remove(&call);
        self.lose_reader(call);
    }

    /// The client of a call is gone.
    pub fn lose_reader(&mut self, call: Call) {
        self.host.forget_blocked(call);
        answering::lose_reader(&mut self.host, call);
    }

    /// All waiters of this lock get an error.
    pub fn drain(&mut self, lock: usize) {
        while self.waiters(lock).next().is_some() {
            self.process_refused(lock, WriteCheck::Elsewhere("MOVED".to_owned()));
        }
    }

    /// A grace period starts, and is replicated.
    pub fn begin_grace(&mut self, ms: u64) {
        self.grace(ms);
        let checkpoint = self.state().checkpoint(self.instant_now());
        (0..self.names.len()).for_each(|lock| self.send(lock, Command::Sync(checkpoint)));
    }

    /// The name has another value, and its queue is due.
    pub fn replace(&mut self, lock: usize, value: Lock) {
        self.put(lock, value);
        self.mark_due(lock);
    }

    fn put(&mut self, lock: usize, value: Lock) {
        let name = self.names[lock].clone();
        if value.is_free() {
            self.host.remove(&name);
        } else {
            self.host.put_lock(name, value);
        }
    }

    /// Makes a queue due, if there is one.
    pub fn mark_due(&mut self, lock: usize) {
        let name = self.names[lock].clone();
        let table = &mut self.state_mut().wait_table;
        table.schedule(name.as_ref(), Instant::DISTANT_PAST);
    }

    /// DEL
    pub fn delete(&mut self, lock: usize) {
        self.replace(lock, Lock::default());
        self.send(lock, Command::Delete);
    }

    /// RENAME
    pub fn rename(&mut self, from: usize, to: usize) {
        let value = self.lock_at(from).clone();
        self.put(from, Lock::default());
        self.mark_due(from);
        self.replace(to, value);
        self.send(to, Command::RenameFrom(from));
    }

    /// DUMP; `None` = no key.
    pub fn dump(&self, lock: usize) -> Option<Vec<u8>> {
        let (mut value, clock) = (self.lock_at(lock).clone(), self.clock());
        value.remove_if(|holder| !holder.is_live(clock), |_| {});
        (!value.is_free()).then(|| encode_lock(&value, clock))
    }

    /// RESTORE REPLACE
    pub fn restore(&mut self, lock: usize, bytes: &[u8]) {
        let now = self.instant_now();
        let value = decode_lock(bytes, now).expect("what was dumped can be restored");
        self.replace(lock, value);
        self.send(lock, Command::Restore(bytes.to_vec()));
    }

    /// On a replica, or while the append-only file is loaded: executes a command of the primary. Expired holders
    /// are not removed here.
    pub fn receive(&mut self, lock: usize, command: &Command) {
        match command {
            Command::Apply(change, _) => {
                let name = self.names[lock].clone();
                self.obey(&memory::Sent::Change(name, change.clone()));
                self.take_effects();
                assert!(self.effects.is_changed, "a replica propagates what it received");
                let (value, known) = (self.lock_at(lock), self.state().fences.known());
                assert!(value.is_sound(), "{value:?}");
                assert!(value.holders().iter().all(|holder| holder.fence() <= known));
            }
            Command::Delete => self.put(lock, Lock::default()),
            Command::RenameFrom(from) => {
                let value = self.lock_at(*from).clone();
                self.put(*from, Lock::default());
                self.put(lock, value);
            }
            Command::Restore(bytes) => {
                let value = decode_lock(bytes, self.instant_now());
                self.put(lock, value.expect("a lock that the primary decoded"));
            }
            Command::Sync(received) => self.obey(&memory::Sent::Checkpoint(*received, false)),
        }
    }

    fn obey(&mut self, sent: &memory::Sent) {
        self.host.receive(sent).expect("a command of the primary");
        self.host.stream.clear();
    }

    /// Adds a holder to a state under test. It gets the next fence.
    pub fn put_holder(&mut self, lock: usize, holder: &naive::Holder) -> Fence {
        let name = self.names[lock].clone();
        let fence = self.state_mut().fences.next_fence(name.as_ref(), None);
        let fence = fence.expect("a fence");
        let (since, lease_end) = (self.instant(holder.since), self.instant(holder.lease_end));
        let mut put = Holder::new(holder.owner, holder.limit, fence, since, lease_end);
        for id in &holder.holds {
            match id {
                Some(id) => put.add_with_id(id),
                None => put.add_anonymous(1),
            }
            .expect("few holds");
        }
        let mut value = self.lock_at(lock).clone();
        value.push(put);
        self.put(lock, value);
        fence
    }

    /// Adds a waiter to a state under test.
    pub fn put_waiter(&mut self, lock: usize, client: Client, request: &Acquire<'_>) {
        let (clock, now) = (self.clock(), self.instant_now());
        let (name, value) = (self.names[lock].clone(), self.lock_at(lock).clone());
        let ServerState {
            wait_table: table,
            inboxes,
            ..
        } = self.state_mut();
        let (name, nobody) = (name.as_ref(), Caller { db: 0, user: b"" });
        let inbox = inboxes.of(None, nobody).expect("an inbox without a name");
        let timeout = request.wait.expect("a waiter").timeout;
        let waiter = waiting::Waiter::new(request, timeout, inbox, now);
        let room = Room {
            per_lock: usize::MAX,
            max: usize::MAX,
            answers: 0,
        };
        let inserted = table
            .insert(name, waiter, room, |_| false)
            .expect("there is room");
        table.recheck_holders(name);
        table.sync(name, &value, clock);
        let call = inboxes.expect(inbox, inserted.ticket, inserted.name);
        let call = call.expect("a client to be blocked");
        self.host.block(call);
        let _ = self.host.take_parked();
        self.clients.insert(call, client);
    }

    /// When the leases of the live holders end, on the clock that all servers share.
    pub fn lease_ends(&self, lock: usize) -> Vec<Micros> {
        let clock = self.clock();
        let live = self.lock_at(lock).live_holders(clock);
        live.map(|holder| holder.lease_end(clock).as_micros() - self.origin)
            .collect()
    }

    /// When the grace period ends, if there was one.
    pub fn grace_end(&self) -> Option<Micros> {
        let end = self.clock().grace_end;
        (end > Instant::DISTANT_PAST).then(|| end.as_micros() - self.origin)
    }

    pub fn next_wakeup(&self) -> Option<Micros> {
        let wakeup = self.state().wait_table.next_wakeup()?;
        Some(wakeup.as_micros().saturating_sub(self.origin))
    }

    pub fn take_replies(&mut self) -> Vec<(Client, Reply)> {
        std::mem::take(&mut self.replies)
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    pub fn view(&self, lock: usize) -> LockView<'_> {
        let clock = self.clock();
        let live = self.lock_at(lock).live_holders(clock);
        let waiters = self.waiters(lock).map(|(_, waiter)| Waiter {
            client: self.clients[&waiter.inbox().call_of_block()],
            since: waiter.since.as_micros() - self.origin,
            request: Acquire {
                owner: waiter.owner(),
                lease_ms: waiter.lease_ms,
                limit: waiter.limit,
                wait: block(waiter.timeout),
                request_id: waiter.request_id.as_deref(),
                min_fence: waiter.min_fence,
            },
        });
        LockView {
            holders: live.map(|holder| HolderView::of(holder, clock)).collect(),
            queue: waiters.collect(),
        }
    }

    pub fn guard(&self, lock: usize, request: &Guard<'_>) -> Result<u64, Error> {
        request.check(self.lock_at(lock), self.clock())
    }

    pub fn stored(&self, lock: usize) -> Vec<Stored> {
        let stored = |holder: &Holder| {
            let lease_end = holder.lease_end(self.clock()).as_micros() - self.origin;
            (holder.without_times(), lease_end)
        };
        self.lock_at(lock).holders().iter().map(stored).collect()
    }
}
