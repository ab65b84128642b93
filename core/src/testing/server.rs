//! The core under test: a server with locks and their queues, which drives `Transition` as the shell does.
//!
//! The invariants are checked after every transition made here, so every test checks them.

use std::collections::BTreeMap;

use super::invariants::{self, Cause, Checked, Snapshot};
use super::naive;
use super::ops::{Answer, Client, HolderView, LockView, Micros, Reply, Request, Waiter, block};
use super::outside::{IN_2025_UNIX_MS, Outside};
use crate::codec::{decode_lock, encode_lock};
use crate::effects::{self, Effects};
use crate::error::Error;
use crate::event::Event;
use crate::fence::Fence;
use crate::grace::{GraceLength, GraceSettings};
use crate::inbox;
use crate::inbox_id::Call;
use crate::lease_clock::LeaseClock;
use crate::lock::{Holder, Lock};
use crate::name::LockName;
use crate::outcome::Acquired;
use crate::policy::Policy;
use crate::queue::{self, Queue};
use crate::request::{Acquire, Caller, Guard, Release};
use crate::server_state::{Checkpoint, ServerState};
use crate::ticket::Ticket;
use crate::time::Instant;
use crate::transition::Transition;

/// The names of the locks of [`Server::new`].
pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// What the clock of a server shows at 0, unless the test says otherwise.
pub const ORIGIN: Micros = 123_456;
/// A server that cannot grant now retries after this time.
pub const RETRY_MS: u64 = 50;

#[derive(Debug)]
pub struct Server {
    pub state: ServerState,
    /// The value of each name; free = no key.
    pub locks: Vec<(LockName, Lock)>,
    pub effects: Effects,
    now: Instant,
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

/// An RDB file. Grace period and fence counter belong to no lock: they are stored beside the locks.
#[derive(Clone, Debug)]
pub struct Saved {
    locks: Vec<(LockName, Option<Vec<u8>>)>,
    checkpoint: Checkpoint,
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
            state: ServerState::default(),
            locks: names.map(|name| (name, Lock::default())).collect(),
            effects: Effects::default(),
            now: Instant::from_micros(origin),
            origin,
            clients: BTreeMap::new(),
            last_client: 0,
            replies: Vec::new(),
            woken: Vec::new(),
            sent: Vec::new(),
        };
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
        let mut policy = *self.state.policy();
        change(&mut policy);
        self.state.set_policy(policy);
    }

    pub fn clock(&self) -> LeaseClock {
        self.state.clock(self.now)
    }

    pub fn now(&self) -> Micros {
        self.now.as_micros() - self.origin
    }

    pub fn set_now(&mut self, now: Micros) {
        self.now = self.instant(now);
    }

    pub fn pass(&mut self, micros: Micros) {
        self.set_now(self.now() + micros);
    }

    /// The wall clock of all servers.
    fn outside(&self) -> Outside {
        Outside::at_unix_ms(IN_2025_UNIX_MS + self.now() as u64 / 1_000)
    }

    fn instant(&self, time: Micros) -> Instant {
        Instant::from_micros(time + self.origin)
    }

    /// A grace period starts, or the current one becomes longer.
    pub fn grace(&mut self, ms: u64) {
        self.state.grace.restore(ms, self.now);
    }

    /// Begins to decide, with a grace period of this length. Returns what [`Server::tick`] does.
    pub fn start(&mut self, grace_ms: u64) -> bool {
        let (known, policy) = (self.state.fences.known(), *self.state.policy());
        let length = GraceLength::Ms(grace_ms);
        let (startup, failover) = (length, length);
        self.set_policy(|policy| policy.graces = GraceSettings { startup, failover });
        let has_advanced = self.tick();
        self.state.set_policy(policy);
        // Replicas begin with what it has now.
        self.sent.clear();
        assert!(
            self.state.fences.known() >= known,
            "the fence counter went backwards"
        );
        has_advanced
    }

    /// As [`Server::start`], for a replica that becomes the primary.
    pub fn promote(&mut self, grace_ms: u64) -> bool {
        self.state.promote();
        self.start(grace_ms)
    }

    /// What the cron does. Returns whether the fence counter has advanced, as it has to after a start or a promotion.
    pub fn tick(&mut self) -> bool {
        let was_pending = self.state.fences.is_advance_pending();
        let outside = self.outside();
        self.state.tick(&outside.inputs(self.now));
        let has_advanced = was_pending && !self.state.fences.is_advance_pending();
        if has_advanced {
            self.send(0, Command::Sync(self.state.checkpoint(self.now)));
        }
        has_advanced
    }

    pub fn save(&self) -> Saved {
        let clock = self.clock();
        let lock = |(name, lock): &(LockName, Lock)| {
            let stored = (!lock.is_free()).then(|| encode_lock(lock, clock));
            (name.clone(), stored)
        };
        Saved {
            locks: self.locks.iter().map(lock).collect(),
            checkpoint: self.state.checkpoint(self.now),
        }
    }

    /// A server that loads what was stored, at `now`: a replica, or one that is to [start](Server::start).
    pub fn load(saved: &Saved, now: Micros, origin: Micros) -> Self {
        let names = saved.locks.iter().map(|(name, _)| name.clone());
        let mut server = Self::starting(names, origin);
        server.set_now(now);
        for ((_, lock), (_, stored)) in server.locks.iter_mut().zip(&saved.locks) {
            if let Some(bytes) = stored {
                *lock = decode_lock(bytes, server.now).expect("a lock that was encoded");
            }
        }
        server.state.restore_checkpoint(saved.checkpoint, server.now);
        server
    }

    /// Sends a request of a client. Returns the reply, `None` if its client waits.
    pub fn ask(&mut self, client: Client, lock: usize, request: &Request<'_>) -> Option<Reply> {
        let reply = self.step(lock, Cause::Request(request), |transition| match request {
            Request::Acquire(request) => Ok(match transition.acquire(request, b"", true)? {
                Acquired::Granted(granted) => Answer::Granted(granted),
                Acquired::NotGranted => Answer::NotGranted,
                Acquired::Queued(ahead) => Answer::Queued(ahead),
            }),
            Request::Release(request) => transition.release(request).map(Answer::Holds),
            Request::Extend(request) => transition.extend(request).map(Answer::Lease),
        });
        let Some(call) = self.effects.parked.take() else {
            return Some(reply);
        };
        let former = self.clients.insert(call, client);
        assert_eq!(former, None, "two clients with one inbox");
        None
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
        let known_before = self.state.fences.known();
        let (outside, clock) = (self.outside(), self.clock());
        let inputs = outside.inputs(self.now);
        let (name, value) = &mut self.locks[lock];
        let mut begun = self.state.begin(&inputs, name.as_ref(), value, &mut self.effects);
        let reply = transition(&mut begun);
        let is_blocking = matches!(cause, Cause::Request(request) if request.blocks());
        assert_eq!(
            self.effects.parked.is_some(),
            is_blocking && matches!(reply, Ok(Answer::Queued(_))),
            "only a request that blocks and waits is parked"
        );
        invariants::check(&Checked {
            before: &before,
            known_before,
            cause,
            clock,
            evictable: self.state.policy().evictable,
            max_holders: self.state.policy().max_holders,
            after: &self.snapshot(lock),
            known_after: self.state.fences.known(),
            reply: &reply,
            effects: &self.effects,
        });
        if self.effects.is_changed {
            let events = self.effects.events.clone();
            self.send(
                lock,
                Command::Apply(self.effects.change().expect("an encoded change").to_vec(), events),
            );
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
            is_cut: self.is_cut(lock),
            is_due: self.is_due(lock),
        }
    }

    /// Whether the last transition had more waiters to answer than one may.
    pub fn is_cut(&self, lock: usize) -> bool {
        let queue = self.state.wait_table.queue(self.locks[lock].0.as_ref());
        queue.is_some_and(|queue| queue.is_cut)
    }

    fn waiters(&self, lock: usize) -> impl Iterator<Item = (Ticket, &queue::Waiter)> {
        let queue = self.state.wait_table.queue(self.locks[lock].0.as_ref());
        queue.into_iter().flat_map(Queue::iter)
    }

    fn send(&mut self, lock: usize, command: Command) {
        let after = self.stored(lock);
        self.sent.push(Sent { lock, command, after });
    }

    fn reply_to_waiters(&mut self) {
        self.state.deliver(&mut self.effects);
        for call in self.effects.calls.drain(..) {
            let Some(client) = self.clients.remove(&call) else {
                self.woken.push(call);
                continue;
            };
            let Some(inbox::Reply::Answer(answer)) = self.state.inboxes.reply(call, self.now) else {
                panic!("a waiter has no answer");
            };
            let reply = match answer {
                effects::Answer::Granted(granted) => Ok(Answer::Granted(granted)),
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
        let name = self.state.wait_table.next_due(self.now)?;
        self.locks.iter().position(|(known, _)| *known == name)
    }

    pub fn is_due(&self, lock: usize) -> bool {
        let entry = self.state.wait_table.entry(self.locks[lock].0.as_ref());
        let wakeup = entry.and_then(|entry| entry.next_wakeup);
        wakeup.is_some_and(|wakeup| wakeup <= self.now)
    }

    pub fn process_due(&mut self) {
        while let Some(lock) = self.due() {
            self.on_timer(lock);
        }
    }

    /// A timer fires while the server may not grant: waiters time out, the rest is deferred.
    pub fn defer(&mut self, lock: usize) {
        let name = self.locks[lock].0.as_ref();
        self.state.time_out_waiters(name, self.now, &mut self.effects);
        self.state.wait_table.defer(name, self.now.after_ms(RETRY_MS));
        self.reply_to_waiters();
    }

    /// The client of a waiter disconnects.
    pub fn disconnect(&mut self, client: Client) {
        let call = self.clients.iter().find(|(_, other)| **other == client);
        let call = *call.expect("a client that waits").0;
        self.clients.remove(&call);
        self.state.lose_reader(call, self.now);
    }

    /// All waiters of this lock get an error.
    pub fn drain(&mut self, lock: usize) {
        while self.waiters(lock).next().is_some() {
            let name = self.locks[lock].0.as_ref();
            self.state
                .turn_away_waiters(name, "MOVED", self.now, &mut self.effects);
            self.reply_to_waiters();
        }
    }

    /// A grace period starts, and is replicated.
    pub fn begin_grace(&mut self, ms: u64) {
        self.grace(ms);
        let checkpoint = self.state.checkpoint(self.now);
        (0..self.locks.len()).for_each(|lock| self.send(lock, Command::Sync(checkpoint)));
    }

    /// The name has another value, and its queue is due.
    pub fn replace(&mut self, lock: usize, value: Lock) {
        self.locks[lock].1 = value;
        let name = self.locks[lock].0.as_ref();
        self.state.wait_table.recheck_holders(name);
        self.mark_due(lock);
    }

    /// Makes a queue due, if there is one.
    pub fn mark_due(&mut self, lock: usize) {
        let name = self.locks[lock].0.as_ref();
        self.state.wait_table.schedule(name, Instant::DISTANT_PAST);
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
        let (mut value, clock) = (self.locks[lock].1.clone(), self.clock());
        value.remove_if(|holder| !holder.is_live(clock), |_| {});
        (!value.is_free()).then(|| encode_lock(&value, clock))
    }

    /// RESTORE REPLACE
    pub fn restore(&mut self, lock: usize, bytes: &[u8]) {
        let value = decode_lock(bytes, self.now).expect("what was dumped can be restored");
        self.state.observe_lock(&value, self.now);
        self.replace(lock, value);
        self.send(lock, Command::Restore(bytes.to_vec()));
    }

    /// On a replica, or while the append-only file is loaded: executes a command of the primary. Expired holders
    /// are not removed here.
    pub fn receive(&mut self, lock: usize, command: &Command) {
        match command {
            Command::Apply(change, _) => self.apply(lock, change),
            Command::Delete => self.locks[lock].1 = Lock::default(),
            Command::RenameFrom(from) => self.locks[lock].1 = std::mem::take(&mut self.locks[*from].1),
            Command::Restore(bytes) => {
                self.locks[lock].1 = decode_lock(bytes, self.now).expect("a lock that the primary decoded");
            }
            Command::Sync(checkpoint) => self.state.apply_checkpoint(*checkpoint, self.now),
        }
    }

    fn apply(&mut self, lock: usize, change: &[u8]) {
        let value = &mut self.locks[lock].1;
        self.state
            .apply(self.now, value, change, &mut self.effects)
            .expect("a command of the primary");
        assert!(self.effects.is_changed, "a replica propagates what it received");
        let known = self.state.fences.known();
        assert!(value.is_sound(), "{value:?}");
        assert!(value.holders().iter().all(|holder| holder.fence() <= known));
    }

    /// Adds a holder to a state under test. It gets the next fence.
    pub fn put_holder(&mut self, lock: usize, holder: &naive::Holder) -> Fence {
        let name = self.locks[lock].0.as_ref();
        let fence = self.state.fences.next_fence(name, None).expect("a fence");
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
        let (clock, policy) = (self.clock(), *self.state.policy());
        let ServerState {
            wait_table: table,
            inboxes,
            ..
        } = &mut self.state;
        let (name, nobody) = (self.locks[lock].0.as_ref(), Caller { db: 0, user: b"" });
        let inbox = inboxes.of(None, nobody).expect("an inbox without a name");
        let timeout = request.wait.expect("a waiter").timeout;
        let waiter = queue::Waiter::new(request, timeout, inbox, self.now);
        let inserted = table
            .insert(name, waiter, &policy, (inboxes, 0))
            .expect("room in the queue");
        table.recheck_holders(name);
        table.sync(name, &self.locks[lock].1, clock);
        let call = inboxes.expect(inbox, inserted.ticket, inserted.name);
        self.clients.insert(call.expect("a client to be blocked"), client);
    }

    /// When the leases of the live holders end, on the clock that all servers share.
    pub fn lease_ends(&self, lock: usize) -> Vec<Micros> {
        let clock = self.clock();
        let live = self.locks[lock].1.live_holders(clock);
        live.map(|holder| holder.lease_end(clock).as_micros() - self.origin)
            .collect()
    }

    /// When the grace period ends, if there was one.
    pub fn grace_end(&self) -> Option<Micros> {
        let end = self.clock().grace_end;
        (end > Instant::DISTANT_PAST).then(|| end.as_micros() - self.origin)
    }

    pub fn next_wakeup(&self) -> Option<Micros> {
        let wakeup = self.state.wait_table.next_wakeup()?;
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
        let live = self.locks[lock].1.live_holders(clock);
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
        request.check(&self.locks[lock].1, self.clock())
    }

    pub fn stored(&self, lock: usize) -> Vec<Stored> {
        let stored = |holder: &Holder| {
            let lease_end = holder.lease_end(self.clock()).as_micros() - self.origin;
            (holder.without_times(), lease_end)
        };
        self.locks[lock].1.holders().iter().map(stored).collect()
    }
}
