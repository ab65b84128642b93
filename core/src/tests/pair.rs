//! Core and model side by side: the same happens to both, and they must reply and look the same.

use std::collections::BTreeSet;

use super::naive::{Holder, Model};
use super::ops::{Action, Answer, Ask, Block, Client, Micros, Reply, Undelivered, Waiter};
use super::schedule::{Admin, GivenFence, Memory, Pass, Step};
use super::subject::{KEYS, ORIGIN, RETRY_MS, Server, owner_bytes, owner_number};
use crate::deadlock::{Claim, Cycle};
use crate::fence::AdvanceReason;
use crate::name::LockName;

/// Small, so that schedules reach it.
const MAX_WAITERS: usize = 4;

pub struct Pair {
    pub server: Server,
    pub model: Model,
    memories: Vec<Memory>,
    /// The requests of the clients; a client is an index.
    asks: Vec<Ask>,
    /// The clients that have a reply or are disconnected.
    done: Vec<bool>,
    /// The client of the next grant to a waiter disconnects before the grant reaches it.
    lose_next_grant: bool,
    undelivered: Vec<Undelivered>,
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
        let mut server = Server::new(locks, ORIGIN);
        server.policy.max_waiters = MAX_WAITERS;
        let model = Model {
            last_fence: server.engine.fences.last(),
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

    /// Adds a holder to a state under test. It gets the next fence.
    pub fn put_holder(&mut self, lock: usize, holder: Holder) {
        let fence = self.server.put_holder(lock, &holder);
        self.model.last_fence = fence;
        self.model.locks[lock].holders.push(Holder { fence, ..holder });
    }

    /// Adds a waiter to a state under test. It gets the next client.
    pub fn put_waiter(&mut self, lock: usize, waiter: Waiter) {
        let client = self.asks.len();
        let waiter = Waiter { client, ..waiter };
        self.asks.push(waiter.ask(lock));
        self.done.push(false);
        self.server.put_waiter(lock, &waiter);
        self.model.locks[lock].queue.push(waiter);
    }

    /// After holders and waiters were added: whether the state may contain a deadlock.
    pub fn expect_deadlocks(&mut self) {
        self.may_be_deadlocked = !self.model.deadlocked().is_empty() || self.has_undetectable_deadlocks();
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Ask {
                lock,
                owner,
                action,
                given,
                block,
            } => self.ask_with_fence(lock, owner, action, given, block),
            Step::Pass(pass) => self.pass(pass),
            Step::Expire => (0..self.model.locks.len()).for_each(|lock| self.server.sweep(lock)),
            Step::FireTimers => self.process_due(),
            Step::Disconnect { lock, place } => self.disconnect(lock, place),
            Step::LoseNextGrant => self.lose_next_grant = true,
            // A server that may not grant rejects writes of administrators, too.
            Step::Admin(command) if !self.grants_paused => self.administrate(command),
            Step::Admin(_) => {}
            Step::Grace(grace_ms) => self.grace(grace_ms),
            Step::Restart { grace_ms, origin } => {
                self.restart(origin);
                self.take_over(AdvanceReason::Start, grace_ms);
            }
            // There is one server here: nothing can be lost.
            Step::Promotion { grace_ms, .. } => self.take_over(AdvanceReason::Promotion, grace_ms),
            Step::Evictable(evictable) => {
                self.server.cx.evictable = evictable;
                self.model.evictable = evictable;
            }
            Step::GrantsPaused(grants_paused) => self.grants_paused = grants_paused,
            Step::DetectDeadlocks(detect) => {
                self.may_be_deadlocked |= !detect;
                self.server.policy.detect_deadlocks = detect;
                self.model.detect_deadlocks = detect;
            }
        }
        self.compare(&step);
    }

    fn ask_with_fence(&mut self, lock: usize, owner: u8, action: Action, given: GivenFence, block: Block) {
        // The server rejects a write that it may not execute before the module sees it.
        if !self.grants_paused {
            let request = self.memories[lock].request(owner, action, given);
            self.ask(&Ask { lock, request, block });
        }
    }

    /// On a server without waiters.
    fn restart(&mut self, origin: Micros) {
        let saved = self.server.save();
        let mut restarted = Server::load(&saved, self.model.now, origin);
        restarted.cx.evictable = self.server.cx.evictable;
        restarted.policy = self.server.policy;
        self.server = restarted;
        self.model.restart();
    }

    fn take_over(&mut self, reason: AdvanceReason, grace_ms: u64) {
        self.server.take_over(reason, grace_ms);
        self.model.take_over(self.server.engine.fences.last(), grace_ms);
    }

    pub fn ask(&mut self, ask: &Ask) {
        let is_acquire = matches!(ask.request.action, Action::Acquire { .. });
        if is_acquire && (ask.block != Block::No || !self.undelivered.is_empty()) {
            self.process_due();
        }
        let client = self.asks.len();
        self.asks.push(*ask);
        self.done.push(false);
        self.model.ask(client, ask);
        if let Some(cycle) = self.server.ask(client, ask) {
            self.deadlocks += 1;
            self.check_cycle(ask, &cycle);
        }
    }

    /// Each link of the cycle must exist. A request that closes a cycle must be part of it.
    fn check_cycle(&self, ask: &Ask, cycle: &Cycle) {
        let closes_it = self.model.deadlocked().is_empty();
        let of_request = |link: &Link| (link.owner, link.waits_for) == (ask.request.owner, ask.lock);
        let links: Vec<Link> = cycle.links.iter().map(Link::of).collect();
        let closed_by_request = links.iter().any(of_request);
        assert_eq!(cycle.closed_by_request, closed_by_request, "{cycle}");
        assert!(
            closed_by_request || !closes_it,
            "not the cycle that the request closes: {cycle}"
        );
        let before = links.iter().cycle().skip(links.len() - 1);
        for (link, before) in links.iter().zip(before) {
            assert_eq!(link.claims, before.waits_for, "{cycle}");
            let is_true = match link.queued_ahead {
                None => self
                    .model
                    .live(link.claims)
                    .any(|holder| holder.owner == link.owner),
                Some(other) => {
                    assert_eq!(other, before.owner, "{cycle}");
                    let place = self.place(link.owner, link.claims);
                    let after = self.place(other, link.claims);
                    place.is_some_and(|place| after.is_none_or(|after| place < after))
                }
            };
            let waits = of_request(link) || self.place(link.owner, link.waits_for).is_some();
            assert!(is_true && waits, "{cycle}");
        }
    }

    fn place(&self, owner: u8, lock: usize) -> Option<usize> {
        let queue = &self.model.locks[lock].queue;
        queue.iter().position(|waiter| waiter.owner == owner)
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
            for hold in std::mem::take(&mut self.undelivered) {
                self.server.roll_back(&hold);
                self.model.rollback_grant(&hold);
            }
        }
        while let Some(lock) = self.server.due() {
            if self.grants_paused {
                self.server.defer(lock);
                self.model.time_out_waiters(lock);
                self.deferred_until = self.model.now + RETRY_MS as Micros * 1000;
            } else {
                self.server.on_timer(lock);
                self.model.on_timer(lock);
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
        self.server.client_leaves(lock, client);
        self.model.leave(lock, client);
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
                self.server.drain(lock, "WRONGTYPE");
                model.locks[lock].holders.clear();
                model.drain(lock, "WRONGTYPE");
            }
        }
    }

    fn grace(&mut self, grace_ms: u64) {
        for lock in 0..self.model.locks.len() {
            self.server.drain(lock, "UNBLOCKED");
            self.model.drain(lock, "UNBLOCKED");
            self.server.sweep(lock);
        }
        self.server.begin_grace(grace_ms);
        self.model.begin_grace(grace_ms);
    }

    pub fn compare(&mut self, step: &dyn std::fmt::Debug) {
        let mut replies = self.server.take_replies();
        let mut expected = std::mem::take(&mut self.model.replies);
        let by_client = |reply: &(Client, Reply)| reply.0;
        replies.sort_by_key(by_client);
        expected.sort_by_key(by_client);
        assert_eq!(replies, expected, "after {step:?}");
        for (client, reply) in replies {
            assert!(!self.done[client], "a second reply after {step:?}: {reply:?}");
            self.done[client] = true;
            self.note(client, reply);
        }
        for lock in 0..self.model.locks.len() {
            let (view, expected) = (self.server.view(lock), self.model.view(lock));
            assert_eq!(view, expected, "lock {lock} after {step:?}");
            let waits = expected.queue.iter().map(|waiter| waiter.client);
            { waits }.for_each(|client| assert!(!self.done[client], "a client with a reply still waits"));
            self.check_wakeup(lock);
        }
        self.check_no_deadlock(step);
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
            let owners: BTreeSet<u8> = site.queue.iter().map(|waiter| waiter.owner).collect();
            let waits = |holder: &Holder| owners.contains(&holder.owner);
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

    fn note(&mut self, client: Client, reply: Reply) {
        let Ask { lock, request, .. } = self.asks[client];
        self.memories[lock].note(request.owner, &reply.answer);
        let waited = client + 1 < self.asks.len();
        if let (Action::Acquire { name, .. }, Answer::Granted { fence, .. }) = (request.action, reply.answer)
            && waited
            && std::mem::take(&mut self.lose_next_grant)
        {
            self.undelivered.push(Undelivered {
                lock,
                owner: request.owner,
                fence,
                name,
            });
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
            self.server.engine.wait_table.is_empty() && self.server.engine.wait_table.next_wakeup().is_none()
        );
        assert_eq!(self.server.engine.wait_table.longest_since(), None);
        let mut owners = self.asks.iter().map(|ask| owner_bytes(ask.request.owner));
        assert!(
            !owners.any(|owner| self.server.engine.wait_table.involves(owner)),
            "the wait table still has an owner"
        );
    }
}

/// A link of a cycle with numbers for owners and locks.
struct Link {
    owner: u8,
    queued_ahead: Option<u8>,
    claims: usize,
    waits_for: usize,
}

impl Link {
    fn of(link: &crate::deadlock::Link) -> Self {
        let lock = |name: &Option<LockName>| {
            let name = name.as_ref().expect("nothing is left out");
            let known = KEYS.iter().position(|known| *known.as_bytes() == *name.key);
            known.expect("a lock of the server")
        };
        Self {
            owner: owner_number(link.owner.bytes()),
            queued_ahead: match &link.claim {
                Claim::Holds => None,
                Claim::QueuedAhead(other) => Some(owner_number(other.bytes())),
            },
            claims: lock(&link.claims),
            waits_for: lock(&link.waits_for),
        }
    }
}
