//! The core behind plain words: a server with several locks and their queues, driven as the shell does it.
//!
//! Every step taken through here is checked against the promises, so every test checks them.

use std::collections::BTreeMap;

use super::super::naive;
use super::super::ops::{Action, Answer as OpsAnswer, Micros, Request};
use super::super::subject::{Record, Stored, core_limit, error, name_bytes, name_number};
use super::super::subject::{owner_bytes, owner_number, view_of, with_release};
use super::invariants::{self, Checked, Snapshot};
use super::ops::{self, Ask, Block, Client, Fixture, Told, Undelivered};
use crate::codec::{decode_lock, encode_lock};
use crate::context::TransitionContext;
use crate::deadlock::Cycle;
use crate::effects::{Answer, Effects, Replication, Wake};
use crate::engine::Engine;
use crate::error::Error;
use crate::fence::{Fence, WallClock};
use crate::lock::{Holder, Lock};
use crate::name::LockName;
use crate::outcome::{Acquired, Granted};
use crate::queue::{Queue, Waiter};
use crate::request::{Acquire, Extend, Holds, Release, Timeout};
use crate::ticket::Ticket;
use crate::time::Instant;
use crate::transition::Transition;
use crate::wait_table::WaitPolicy;

const UNIX_MS: u64 = 1_750_000_000_000;
/// What the clock of the server shows at 0.
const ORIGIN: Micros = 123_456;
/// A server that cannot grant now is asked again so much later.
pub const RETRY_MS: u64 = 50;

pub struct Server {
    pub engine: Engine,
    /// What is under each name; free = no key.
    pub locks: Vec<(LockName, Lock)>,
    pub effects: Effects,
    /// All answers that waiters were given, oldest first, until somebody takes them.
    pub answers: Vec<(Ticket, Answer)>,
    pub cx: TransitionContext,
    pub rules: WaitPolicy,
    clients: BTreeMap<Ticket, Client>,
    told: Vec<(Client, Told)>,
    sent: Vec<Sent>,
}

/// What becomes of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(Granted),
    NotGranted,
    Waits(Ticket),
}

/// What replicas and the log are told of a lock, and how it then stood.
#[derive(Clone, Debug)]
pub struct Sent {
    pub lock: usize,
    pub what: What,
    pub after: Vec<(Stored, Micros)>,
}

#[derive(Clone, Debug)]
pub enum What {
    Step(Record),
    /// DEL
    Gone,
    /// RENAME, from that name
    MovedFrom(usize),
    /// RESTORE REPLACE
    Restored(Vec<u8>),
    /// A grace of so many milliseconds begins.
    Grace(u64),
}

impl Server {
    /// A server on which nobody holds or waits for these locks.
    pub fn with(locks: &[&str]) -> Self {
        let mut engine = Engine::starting();
        engine.advance_fences_if_pending(WallClock::from_unix_ms(UNIX_MS), 0);
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
            rules: WaitPolicy {
                max_waiters: 10_000,
                detect_deadlocks: true,
            },
            clients: BTreeMap::new(),
            told: Vec::new(),
            sent: Vec::new(),
        }
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.cx.now = self.cx.now.after_ms(ms);
    }

    /// A grace begins now, or the one that runs becomes longer.
    pub fn grace(&mut self, ms: u64) {
        if self.cx.grace_end <= self.cx.now {
            self.cx.grace_begin = self.cx.now;
        }
        self.cx.grace_end = self.cx.grace_end.max(self.cx.now.after_ms(ms));
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

    /// ACQUIRE. A request that blocks lets go first what is due anywhere.
    pub fn acquire(&mut self, key: &str, request: &Acquire<'_>) -> Result<Outcome, Error> {
        if request.block.is_some() {
            self.process_due();
        }
        self.acquire_now(key, request)
    }

    fn acquire_now(&mut self, key: &str, request: &Acquire<'_>) -> Result<Outcome, Error> {
        let rules = self.rules;
        Ok(
            match self.step(key, |transition| transition.acquire(request, rules))? {
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
        self.step(key, |transition| transition.release(request))
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
                fence,
            },
        )
    }

    fn extend_now(&mut self, key: &str, request: &Extend<'_>) -> Result<u64, Error> {
        self.step(key, |transition| transition.extend(request))
    }

    /// A hold was granted to a client which had gone.
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
        self.step(key, |transition| transition.rollback_grant(request))
    }

    /// Looks after every queue that is due.
    pub fn process_due(&mut self) {
        while let Some(name) = self.engine.wait_table.next_due(self.cx.now) {
            let key = String::from_utf8_lossy(&name.key).into_owned();
            self.tend_to(&key);
        }
    }

    fn tend_to(&mut self, key: &str) {
        self.step(key, |transition| transition.on_timer());
    }

    /// A waiter's client is gone.
    pub fn leave(&mut self, key: &str, ticket: Ticket) {
        let name = self.name(key);
        self.engine.wait_table.remove_waiter(name.as_ref(), ticket);
    }

    /// DEL, RENAME, RESTORE REPLACE: another value is under the name, and its queue is marked.
    pub fn replace(&mut self, key: &str, lock: Lock) {
        let place = self.place(key);
        self.locks[place].1 = lock;
        self.mark(place);
    }

    fn step<R>(&mut self, key: &str, step: impl FnOnce(&mut Transition<'_>) -> R) -> R {
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
            cx: &self.cx,
            after: &self.snapshot(place),
            known_after: self.engine.fences.known(),
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

/// The same in plain words: locks, owners and clients are numbers, and nothing is due before it is rung for.
impl Server {
    /// Answers, if the request was refused as a deadlock, with the cycle that the text names.
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
                        assert_eq!(granted.waited_ms, 0, "nobody waited");
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
            Action::Extend { lease_ms } => {
                let fence = request.fence;
                self.extend_now(
                    &key,
                    &Extend {
                        owner,
                        lease_ms,
                        fence,
                    },
                )
                .map_or_else(error, OpsAnswer::Lease)
            }
            _ => with_release(request, |release| self.release_now(&key, release))
                .map_or_else(error, OpsAnswer::Holds),
        };
        self.told.push((client, Told::at_once(answer)));
        self.deliver(ask.lock, Some(request));
        cycle
    }

    /// A holder that came to be there by whatever steps; answers its fence.
    pub fn put_holder(&mut self, lock: usize, holder: &naive::Holder) -> Fence {
        let fence = self.engine.fences.next_fence().expect("a fence");
        let instant = |time: Micros| Instant::from_micros(time + ORIGIN);
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

    /// A waiter that came to be there by whatever steps.
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
        let waiter_of = Waiter::new(&request, request.block.expect("one who waits"), self.cx.now);
        let ticket = table
            .insert(name, waiter_of, self.rules.max_waiters)
            .expect("room in the queue")
            .ticket;
        table.sync(name, &self.locks[lock].1, &self.cx);
        self.clients.insert(ticket, waiter.client);
    }

    /// Somebody has to look at a queue, if there is one.
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
        self.tend_to(&self.key(lock));
        self.deliver(lock, None);
    }

    /// What is due for a lock while the server may grant nothing.
    pub fn hold_back(&mut self, lock: usize) {
        let (name, mut effects) = (self.locks[lock].0.clone(), Effects::default());
        self.engine
            .wait_table
            .time_out_waiters(name.as_ref(), self.cx.now, &mut effects);
        self.engine
            .wait_table
            .defer(name.as_ref(), self.cx.now.after_ms(RETRY_MS));
        self.answers
            .extend(effects.wakes.into_iter().map(|wake| (wake.ticket, wake.answer)));
        self.tell();
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

    /// A grace begins, of which replicas and the log are told.
    pub fn begin_grace(&mut self, ms: u64) {
        self.grace(ms);
        (0..self.locks.len()).for_each(|lock| self.send(lock, What::Grace(ms)));
    }

    /// Somebody sweeps the lock, as the server does when its lease has ended and nobody waits.
    pub fn sweep(&mut self, lock: usize) {
        self.effects.clear();
        let (name, value) = &mut self.locks[lock];
        self.engine
            .begin(name.as_ref(), value, &self.cx, &mut self.effects)
            .expire_holders();
        self.record(lock, None);
    }

    /// DEL
    pub fn delete(&mut self, lock: usize) {
        self.replace(&self.key(lock), Lock::default());
        self.send(lock, What::Gone);
    }

    /// RENAME
    pub fn rename(&mut self, from: usize, to: usize) {
        let value = std::mem::take(&mut self.locks[from].1);
        self.replace(&self.key(from), Lock::default());
        self.replace(&self.key(to), value);
        self.send(to, What::MovedFrom(from));
    }

    /// DUMP, `None` = there is nothing.
    pub fn dump(&self, lock: usize) -> Option<Vec<u8>> {
        let mut value = self.locks[lock].1.clone();
        value.remove_if(|holder| !self.cx.is_live(holder), |_| {});
        (!value.is_free()).then(|| encode_lock(&value, &self.cx))
    }

    /// RESTORE REPLACE
    pub fn restore(&mut self, lock: usize, bytes: &[u8]) {
        let value = decode_lock(bytes, self.cx.now).expect("what was dumped can be restored");
        self.replace(&self.key(lock), value);
        self.send(lock, What::Restored(bytes.to_vec()));
    }

    /// All who wait for this lock are sent away.
    pub fn drain(&mut self, lock: usize, code: &'static str) {
        for ticket in self.engine.wait_table.drain(self.locks[lock].0.as_ref()) {
            let client = self.clients.remove(&ticket).expect("one who waits");
            self.told.push((client, Told::error(code)));
        }
    }

    pub fn now(&self) -> Micros {
        self.cx.now.as_micros() - ORIGIN
    }

    pub fn set_now(&mut self, now: Micros) {
        self.cx.now = Instant::from_micros(now + ORIGIN);
    }

    pub fn next_wakeup(&self) -> Option<Micros> {
        let alarm = self.engine.wait_table.next_wakeup()?;
        Some(alarm.as_micros().saturating_sub(ORIGIN))
    }

    pub fn take_told(&mut self) -> Vec<(Client, Told)> {
        std::mem::take(&mut self.told)
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    pub fn fixture(&self, lock: usize) -> Fixture {
        let Snapshot { lock, queue } = self.snapshot(lock);
        let live = lock.holders().iter().filter(|holder| self.cx.is_live(holder));
        let waiters = queue.iter().map(|(ticket, waiter)| ops::Waiter {
            client: self.clients[ticket],
            owner: owner_number(waiter.owner()),
            limit: waiter.limit.get(),
            lease_ms: waiter.lease_ms,
            name: waiter.request_id.as_deref().map(name_number),
            since: waiter.since.as_micros() - ORIGIN,
            block: match waiter.timeout {
                Timeout::Infinite => Block::Forever,
                Timeout::Ms(ms) => Block::Ms(ms),
            },
        });
        Fixture {
            holders: live.map(|holder| view_of(holder, &self.cx)).collect(),
            queue: waiters.collect(),
        }
    }

    pub fn stored(&self, lock: usize) -> Vec<(Stored, Micros)> {
        let holders = self.locks[lock].1.holders().iter();
        holders
            .map(|holder| {
                let lease_end = self.cx.lease_end(holder).as_micros() - ORIGIN;
                (Stored::from(holder), lease_end)
            })
            .collect()
    }

    /// After a step: replicas are told, and then those who got an answer.
    fn deliver(&mut self, lock: usize, request: Option<&Request>) {
        self.record(lock, request);
        self.tell();
    }

    fn record(&mut self, lock: usize, request: Option<&Request>) {
        let record = match (self.effects.replication, request) {
            (Replication::Nothing, _) => return,
            (Replication::Verbatim, Some(request)) => Record::Verbatim(*request),
            (Replication::Verbatim | Replication::Change, _) => {
                Record::Change(self.effects.change().to_vec())
            }
        };
        self.send(lock, What::Step(record));
    }

    fn send(&mut self, lock: usize, what: What) {
        let after = self.stored(lock);
        self.sent.push(Sent { lock, what, after });
    }

    fn tell(&mut self) {
        for (ticket, answer) in std::mem::take(&mut self.answers) {
            let client = self.clients.remove(&ticket).expect("one who waits");
            let told = match answer {
                Answer::Granted(granted) => Told {
                    answer: ops_grant(&granted),
                    waited_ms: granted.waited_ms,
                },
                Answer::TimedOut | Answer::Withdrawn => Told::null(),
                Answer::Refused(refusal) => Told::at_once(error(refusal)),
            };
            self.told.push((client, told));
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
        Block::Forever => Some(Timeout::Infinite),
        Block::Ms(ms) => Some(Timeout::Ms(ms)),
    }
}
