//! Core and model side by side: the same happens to both, and they must reply and look the same.

use std::collections::BTreeSet;

use super::naive::{Holder, Model};
use super::ops::{Answer, Client, Micros, OWNERS, Reply, Request, Waiter};
use super::server::{ORIGIN, RETRY_MS, Server};
use super::step::{Admin, Memory, Pass, Step};
use crate::deadlock::{Cycle, Link};
use crate::effects::MaxAnswers;
use crate::names::LockName;
use crate::wire::{Acquire, Error, Guard, Holds, Release};

/// Small, so that schedules reach it.
const MAX_WAITERS: usize = 4;

pub struct Pair {
    pub server: Server,
    pub model: Model,
    memories: Vec<Memory>,
    /// The requests of the clients; a client is an index.
    asks: Vec<(usize, Request<'static>)>,
    /// The clients that have a reply or are disconnected.
    done: Vec<bool>,
    /// The client of the next grant to a waiter disconnects before the grant reaches it.
    lose_next_grant: bool,
    /// The locks and holds of lost grants.
    undelivered: Vec<(usize, Release<'static>)>,
    dump: Option<Dump>,
    grants_paused: bool,
    /// Until then the locks that could not be granted are left alone.
    deferred_until: Micros,
    /// A deadlock may have formed that no search could find.
    may_be_deadlocked: bool,
    pub deadlocks: usize,
}

struct Dump {
    bytes: Vec<u8>,
    holders: Vec<Holder>,
    at: Micros,
}

impl Pair {
    pub fn new(locks: usize) -> Self {
        Self::of(Server::new(locks, ORIGIN))
    }

    /// As [`Pair::new`]. A transition answers so few waiters that the timer often has to go on.
    pub fn answering(max_answers: usize, locks: usize) -> Self {
        let mut server = Server::new(locks, ORIGIN);
        server.effects.max_answers = MaxAnswers(max_answers);
        Self::of(server)
    }

    /// A pair with this server. Holders in its locks are to be added to the model.
    pub fn of(mut server: Server) -> Self {
        server.set_policy(|policy| policy.max_waiters_per_lock = MAX_WAITERS);
        let locks = server.names.len();
        let model = Model {
            last_fence: server.state().fences.last(),
            floor: server.state().fences.last(),
            max_waiters: MAX_WAITERS,
            detect_deadlocks: true,
            locks: vec![Default::default(); locks],
            ..Model::default()
        };
        Self {
            server,
            model,
            memories: (0..locks).map(|_| Memory::default()).collect(),
            asks: Vec::new(),
            done: Vec::new(),
            lose_next_grant: false,
            undelivered: Vec::new(),
            dump: None,
            grants_paused: false,
            deferred_until: 0,
            may_be_deadlocked: false,
            deadlocks: 0,
        }
    }

    /// Adds a waiter to a state under test. It gets the next client.
    pub fn put_waiter(&mut self, lock: usize, request: Acquire<'static>) {
        let (client, since) = (self.asks.len(), self.model.now);
        self.asks.push((lock, Request::Acquire(request)));
        self.done.push(false);
        self.server.put_waiter(lock, client, &request);
        self.model.locks[lock].queue.push(Waiter {
            client,
            since,
            request,
        });
    }

    /// After holders and waiters were added: whether the state may contain a deadlock.
    pub fn expect_deadlocks(&mut self) {
        self.may_be_deadlocked = !self.model.deadlocked().is_empty() || self.has_undetectable_deadlocks();
    }

    pub fn step(&mut self, step: Step) {
        if self.server.tick() {
            self.model.advance_fences(self.server.state().fences.last());
        }
        match step {
            // The server rejects a write that it may not execute before the module sees it.
            Step::Ask { .. } if self.grants_paused => {}
            Step::Ask { lock, request, given } => {
                let request = self.memories[lock].with_fence(request, given);
                self.ask(lock, request);
            }
            Step::Pass(pass) => self.pass(pass),
            Step::Expire => (0..self.model.locks.len()).for_each(|lock| self.server.expire_holders(lock)),
            Step::FireTimers => self.process_due(),
            Step::Disconnect { lock, place } => self.disconnect(lock, place),
            Step::LoseNextGrant => self.lose_next_grant = true,
            // A server that may not grant rejects writes of administrators, too.
            Step::Admin(command) if !self.grants_paused => self.administrate(command),
            Step::Admin(_) => {}
            Step::Grace(grace_ms) => self.grace(grace_ms),
            Step::Restart { grace_ms, origin } => {
                self.restart(origin);
                let has_advanced = self.server.start(grace_ms);
                self.begin_term(has_advanced, grace_ms);
            }
            Step::Promotion(grace_ms) => {
                // A replica has none.
                self.turn_away_waiters();
                let has_advanced = self.server.promote(grace_ms);
                self.begin_term(has_advanced, grace_ms);
            }
            Step::Evictable(evictable) => {
                self.server.set_policy(|policy| policy.evictable = evictable);
                self.model.evictable = evictable;
            }
            Step::GrantsPaused(grants_paused) => self.grants_paused = grants_paused,
            Step::DetectDeadlocks(detect) => {
                self.may_be_deadlocked |= !detect;
                self.server.set_policy(|policy| policy.detect_deadlocks = detect);
                self.model.detect_deadlocks = detect;
            }
        }
        self.compare(&step);
    }

    fn restart(&mut self, origin: Micros) {
        self.turn_away_waiters();
        let saved = self.server.save();
        let mut restarted = Server::load(&saved, self.model.now, origin);
        restarted.state_mut().set_policy(*self.server.state().policy());
        restarted.effects.max_answers = self.server.effects.max_answers;
        restarted.replies = self.server.take_replies();
        self.server = restarted;
        self.model.restart();
    }

    /// The server has begun to decide. Its fence counter may advance later, at the end of the grace period.
    fn begin_term(&mut self, has_advanced: bool, grace_ms: u64) {
        if has_advanced {
            self.model.advance_fences(self.server.state().fences.last());
        }
        if grace_ms > 0 {
            self.model.begin_grace(grace_ms);
        }
    }

    fn turn_away_waiters(&mut self) {
        for lock in 0..self.model.locks.len() {
            self.server.drain(lock);
            self.model.drain(lock);
        }
    }

    pub fn ask(&mut self, lock: usize, request: Request<'static>) {
        if matches!(request, Request::Acquire(acquire) if acquire.wait.is_some() || !self.undelivered.is_empty())
        {
            self.process_due();
        }
        if matches!(request, Request::Acquire(_)) && self.server.effects.max_answers.0 < MAX_WAITERS {
            // It would be answered before the rest of the queue.
            self.on_timer(lock);
        }
        let client = self.asks.len();
        self.asks.push((lock, request));
        self.done.push(false);
        self.model.ask(client, lock, &request);
        let mut reply = self.server.ask(client, lock, &request);
        self.go_on(lock);
        if let Some(Err(Error::Deadlock(cycle))) = &reply {
            self.deadlocks += 1;
            self.check_cycle(lock, request.owner(), cycle);
            reply = Some(Ok(Answer::Deadlock));
        }
        self.server.replies.extend(reply.map(|reply| (client, reply)));
    }

    /// Each link of the cycle must exist. A request that closes a cycle must be part of it.
    fn check_cycle(&self, lock: usize, owner: &[u8], cycle: &Cycle) {
        assert_one_line(&Error::Deadlock(Box::new(cycle.clone())));
        let closes_it = self.model.deadlocked().is_empty();
        let index = |name: &LockName| {
            let mut locks = self.server.names.iter();
            locks.position(|known| known == name).expect("a known lock")
        };
        let links = || cycle.links.iter();
        let of_request = |link: &Link| (&*link.owner, index(&link.waits_for)) == (owner, lock);
        let closed_by_request = links().any(of_request);
        assert_eq!(cycle.closed_by_request, closed_by_request, "{cycle}");
        assert!(
            closed_by_request || !closes_it,
            "not the cycle that the request closes: {cycle}"
        );
        for (link, next) in links().zip(links().cycle().skip(1)) {
            let lock = index(&link.waits_for);
            let (place, ahead) = (self.place(&link.owner, lock), self.place(&next.owner, lock));
            let is_ahead = ahead.is_some_and(|ahead| place.is_none_or(|place| ahead < place));
            let blocks = is_ahead || self.model.live(lock).any(|holder| holder.owner == &*next.owner);
            let waits = of_request(link) || place.is_some();
            assert!(blocks && waits, "{cycle}");
        }
    }

    fn place(&self, owner: &[u8], lock: usize) -> Option<usize> {
        let queue = &self.model.locks[lock].queue;
        queue.iter().position(|waiter| waiter.request.owner == owner)
    }

    fn pass(&mut self, pass: Pass) {
        let now = self.model.now;
        let locks = 0..self.model.locks.len();
        let lease_ends = |lock: usize| self.model.live(lock).map(|holder| holder.lease_end);
        let all_ends: Vec<Micros> = locks.flat_map(lease_ends).collect();
        let next_change = |lock: usize| self.model.next_change(lock).or(lease_ends(lock).min());
        self.model.now = pass.target(now, &all_ends, self.model.grace_end, next_change);
        self.server.set_now(self.model.now);
    }

    pub fn process_due(&mut self) {
        if !self.grants_paused {
            for (lock, hold) in std::mem::take(&mut self.undelivered) {
                self.server.rollback_grant(lock, &hold);
                self.go_on(lock);
                self.model.rollback_grant(lock, &hold);
            }
        }
        while let Some(lock) = self.server.due() {
            if self.grants_paused {
                self.server.defer(lock);
                self.model.time_out_waiters(lock);
                self.deferred_until = self.model.now + RETRY_MS as Micros * 1000;
            } else {
                self.on_timer(lock);
            }
        }
        let is_late = |waiter: &Waiter| {
            waiter
                .deadline()
                .is_some_and(|deadline| deadline <= self.model.now)
        };
        for (lock, site) in self.model.locks.iter().enumerate() {
            assert!(!site.queue.iter().any(is_late), "lock {lock} was not processed");
            let is_deferred = self.grants_paused || self.model.now < self.deferred_until;
            assert!(
                is_deferred || self.model.is_settled(lock),
                "lock {lock} was not processed"
            );
        }
    }

    pub fn disconnect(&mut self, lock: usize, place: usize) {
        let queue = &self.model.locks[lock].queue;
        if queue.is_empty() {
            return;
        }
        let client = queue[place % queue.len()].client;
        self.done[client] = true;
        self.server.disconnect(client);
        self.model.disconnect(lock, client);
    }

    pub fn administrate(&mut self, command: Admin) {
        let model = &mut self.model;
        match command {
            Admin::Delete(lock) => {
                self.server.delete(lock);
                model.locks[lock].holders.clear();
            }
            Admin::Rename { from, to } if from == to => {}
            Admin::Rename { from, to } => {
                self.may_be_deadlocked = true;
                // Those whose leases have expired count too, and the model has forgotten them.
                let youngest = self.server.lock_at(from).holders().last();
                model.learn_fence(youngest.map_or(0, |holder| holder.fence()));
                self.server.rename(from, to);
                let holders = std::mem::take(&mut model.locks[from].holders);
                model.locks[to].holders = holders;
            }
            Admin::Dump(lock) => {
                let (at, holders) = (model.now, model.live(lock).cloned().collect());
                let dump = |bytes| Dump { bytes, holders, at };
                self.dump = self.server.dump(lock).map(dump);
            }
            Admin::Restore(lock) => {
                if let Some(dump) = &self.dump {
                    self.may_be_deadlocked = true;
                    self.server.restore(lock, &dump.bytes);
                    model.restore(lock, &dump.holders, dump.at);
                }
            }
            Admin::OtherType(lock) => {
                self.server.delete(lock);
                self.server.drain(lock);
                model.locks[lock].holders.clear();
                model.drain(lock);
            }
        }
    }

    fn grace(&mut self, grace_ms: u64) {
        self.turn_away_waiters();
        (0..self.model.locks.len()).for_each(|lock| self.server.expire_holders(lock));
        self.server.begin_grace(grace_ms);
        self.model.begin_grace(grace_ms);
    }

    fn on_timer(&mut self, lock: usize) {
        self.server.on_timer(lock);
        self.go_on(lock);
        self.model.on_timer(lock);
    }

    /// After a transition of the lock: the timer goes on if there were too many waiters to answer. Together they do what
    /// the model does at once.
    fn go_on(&mut self, lock: usize) {
        while self.server.is_cut(lock) {
            self.server.on_timer(lock);
        }
    }

    pub fn compare(&mut self, step: &dyn std::fmt::Debug) {
        let mut replies = self.server.take_replies();
        let mut expected = std::mem::take(&mut self.model.replies);
        let by_client = |reply: &(Client, Reply)| reply.0;
        replies.sort_by_key(by_client);
        expected.sort_by_key(by_client);
        assert_eq!(replies, expected, "after {step:?}");
        for (client, reply) in replies {
            if let Err(error) = &reply {
                assert_one_line(error);
            }
            assert!(!self.done[client], "a second reply after {step:?}: {reply:?}");
            self.done[client] = true;
            self.note(client, &reply);
        }
        for lock in 0..self.model.locks.len() {
            let (view, expected) = (self.server.view(lock), self.model.view(lock));
            assert_eq!(view, expected, "lock {lock} after {step:?}");
            let is_done = |waiter: &Waiter| self.done[waiter.client];
            assert!(
                !expected.queue.iter().any(is_done),
                "a client with a reply still waits"
            );
            self.check_wakeup(lock);
            self.check_guards(lock, step);
        }
        self.check_no_deadlock(step);
    }

    /// GUARD passes for each live holder under its own fence, and for nobody else. Stored holders may have expired.
    fn check_guards(&self, lock: usize, step: &dyn std::fmt::Debug) {
        let stored = self.server.stored(lock);
        let fences = stored.iter().map(|(holder, _)| holder.fence).chain([1]);
        for fence in fences {
            for owner in OWNERS {
                let request = Guard { owner, fence };
                let (checked, expected) = (
                    self.server.guard(lock, &request),
                    self.model.guard(lock, &request),
                );
                assert_eq!(checked, expected, "{request:?} of lock {lock} after {step:?}");
            }
        }
    }

    /// Only a request that blocks closes a cycle, and it is rejected.
    fn check_no_deadlock(&mut self, step: &dyn std::fmt::Debug) {
        self.may_be_deadlocked |= self.has_undetectable_deadlocks();
        if !self.may_be_deadlocked {
            let deadlocked = self.model.deadlocked();
            assert!(deadlocked.is_empty(), "{deadlocked:?} after {step:?}");
        }
    }

    /// Deadlocks that no request closes: of an owner that waits twice for a lock, when its first request leaves;
    /// and of a holder that waits for the end of a grace period to re-enter, when its hold ends.
    fn has_undetectable_deadlocks(&self) -> bool {
        self.model.locks.iter().enumerate().any(|(lock, site)| {
            let owners: BTreeSet<&[u8]> = site.queue.iter().map(|waiter| waiter.request.owner).collect();
            let waits = |holder: &Holder| owners.contains(holder.owner);
            owners.len() < site.queue.len() || self.model.live(lock).any(waits)
        })
    }

    /// The next wakeup is not later than the next change of the lock, or the next timeout.
    fn check_wakeup(&self, lock: usize) {
        let is_deferred = self.grants_paused || self.model.now < self.deferred_until;
        let change = if is_deferred {
            let queue = &self.model.locks[lock].queue;
            queue.iter().filter_map(Waiter::deadline).min()
        } else {
            self.model.next_change(lock)
        };
        if let Some(change) = change {
            let wakeup = self.server.next_wakeup();
            assert!(
                wakeup.is_some_and(|wakeup| wakeup <= change),
                "{wakeup:?} for {change}"
            );
        }
    }

    fn note(&mut self, client: Client, reply: &Reply) {
        let (lock, request) = self.asks[client];
        self.memories[lock].note(request.owner(), reply);
        let waited = client + 1 < self.asks.len();
        if let (
            Request::Acquire(Acquire {
                owner, request_id, ..
            }),
            Ok(Answer::Granted(granted)),
        ) = (request, reply)
            && waited
            && std::mem::take(&mut self.lose_next_grant)
        {
            let (fence, holds) = (Some(granted.fence), request_id.map_or(Holds::One, Holds::ById));
            self.undelivered.push((lock, Release { owner, fence, holds }));
        }
    }

    /// Time passes until all clients have a reply. The wait table must be empty then.
    pub fn finish(&mut self) {
        const A_LONG_LEASE: Micros = 1_000_000;
        self.step(Step::GrantsPaused(false));
        self.step(Step::Evictable(false));
        let all_done = |pair: &Self| pair.done.iter().all(|done| *done);
        for _ in 0..=self.asks.len() {
            self.step(Step::Pass(Pass::Micros(A_LONG_LEASE)));
            self.step(Step::FireTimers);
            if all_done(self) {
                break;
            }
        }
        assert!(all_done(self), "a client never got a reply");
        assert!(
            self.server.state().wait_table.is_empty()
                && self.server.state().wait_table.next_wakeup().is_none()
        );
        assert_eq!(self.server.state().wait_table.longest_since(), None);
        let involves =
            |(_, request): &(usize, Request)| self.server.state().wait_table.involves(request.owner());
        assert!(
            !self.asks.iter().any(involves),
            "the wait table still has an owner"
        );
    }
}

fn assert_one_line(error: &Error) {
    let text = error.to_string();
    let is_line = text.starts_with(error.code()) && !text.contains(['\r', '\n']);
    assert!(is_line && text.len() < 4_096, "{text}");
}
