//! Core and model side by side: the same befalls both, and they must tell and show the same.

use std::collections::BTreeSet;

use super::super::naive::Holder;
use super::super::ops::{Action, Answer, Micros};
use super::super::schedule::{Memory, Told as Fence};
use super::super::subject::{owner_bytes, owner_number};
use super::naive::Model;
use super::ops::{Ask, Block, Client, Told, Undelivered, Waiter};
use super::schedule::{Break, Pass, Step};
use super::subject::{RETRY_MS, Server};
use crate::deadlock::{Claim, Cycle};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Small, so that schedules reach it.
const MAX_WAITERS: usize = 4;

pub struct Pair {
    pub server: Server,
    pub model: Model,
    memories: Vec<Memory>,
    /// What each client asked for; its number is its place.
    asks: Vec<Ask>,
    /// Who has an answer, or is gone.
    done: Vec<bool>,
    /// The next client that is granted what it waited for will be gone before it is told.
    one_vanishes: bool,
    undelivered: Vec<Undelivered>,
    dump: Option<Dump>,
    is_held_back: bool,
    /// Until then nobody looks at what could not be served.
    snoozed_until: Micros,
    /// A deadlock may have formed that no search could see.
    may_be_stuck: bool,
    pub deadlocks: usize,
}

struct Dump {
    bytes: Vec<u8>,
    holders: Vec<Holder>,
    at: Micros,
}

impl Pair {
    pub fn new(locks: usize) -> Self {
        let mut server = Server::with(&KEYS[..locks]);
        server.rules.max_waiters = MAX_WAITERS;
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
            one_vanishes: false,
            undelivered: Vec::new(),
            dump: None,
            is_held_back: false,
            snoozed_until: 0,
            may_be_stuck: false,
            deadlocks: 0,
        }
    }

    /// A holder that came to be there by whatever steps. The fence is the next one.
    pub fn put_holder(&mut self, lock: usize, holder: Holder) {
        let fence = self.server.put_holder(lock, &holder);
        self.model.last_fence = fence;
        self.model.locks[lock]
            .lock
            .holders
            .push(Holder { fence, ..holder });
    }

    /// A waiter that came to be there by whatever steps. Its client is the next one.
    pub fn put_waiter(&mut self, lock: usize, waiter: Waiter) {
        let client = self.asks.len();
        let waiter = Waiter { client, ..waiter };
        self.asks.push(waiter.ask(lock));
        self.done.push(false);
        self.server.put_waiter(lock, &waiter);
        self.model.locks[lock].queue.push(waiter);
    }

    /// After holders and waiters were put there: whether an exception has led to this.
    pub fn look_for_exceptions(&mut self) {
        self.may_be_stuck = !self.model.waiting_for_ever().is_empty() || self.somebody_can_fall_behind();
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Ask {
                lock,
                owner,
                action,
                told,
                block,
            } => self.ask_as_told(lock, owner, action, told, block),
            Step::Pass(pass) => self.pass(pass),
            Step::Ring => self.process_due(),
            Step::Leave { lock, place } => self.leave(lock, place),
            Step::Vanish => self.one_vanishes = true,
            // A server that may grant nothing takes no writes from administrators either.
            Step::Break(how) if !self.is_held_back => self.break_lock(how),
            Step::Break(_) => {}
            Step::Grace(grace_ms) => self.grace(grace_ms),
            Step::Evictable(evictable) => {
                self.server.cx.evictable = evictable;
                self.model.evictable = evictable;
            }
            Step::HeldBack(is_held_back) => self.is_held_back = is_held_back,
            Step::DetectDeadlocks(detect) => {
                self.may_be_stuck |= !detect;
                self.server.rules.detect_deadlocks = detect;
                self.model.detect_deadlocks = detect;
            }
        }
        self.compare(&step);
    }

    fn ask_as_told(&mut self, lock: usize, owner: u8, action: Action, told: Fence, block: Block) {
        // The server itself refuses what would write.
        if !self.is_held_back {
            let request = self.memories[lock].request(owner, action, told);
            self.ask(&Ask { lock, request, block });
        }
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
            self.check_circle(ask, &cycle);
        }
    }

    /// Every word of the cycle must be true. A request that makes a deadlock must be part of it.
    fn check_circle(&self, ask: &Ask, cycle: &Cycle) {
        let makes_it = self.model.waiting_for_ever().is_empty();
        let of_request = |link: &Link| (link.owner, link.waits_for) == (ask.request.owner, ask.lock);
        let links: Vec<Link> = cycle.links.iter().map(Link::of).collect();
        let closed_by_request = links.iter().any(of_request);
        assert_eq!(cycle.closed_by_request, closed_by_request, "{cycle}");
        assert!(
            closed_by_request || !makes_it,
            "not the one that was closed: {cycle}"
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
        let target = match pass {
            Pass::Micros(micros) => now + micros,
            Pass::ToChange { lock, offset } => {
                let lease_ends = self.model.live(lock).map(|holder| holder.lease_end);
                let change = self.model.next_change(lock).or(lease_ends.min());
                change.unwrap_or(now) + offset
            }
        };
        self.model.now = target.max(now);
        self.server.set_now(self.model.now);
    }

    pub fn process_due(&mut self) {
        if !self.is_held_back {
            for hold in std::mem::take(&mut self.undelivered) {
                self.server.roll_back(&hold);
                self.model.rollback_grant(&hold);
            }
        }
        while let Some(lock) = self.server.due() {
            if self.is_held_back {
                self.server.hold_back(lock);
                self.model.give_up_waiting(lock);
                self.snoozed_until = self.model.now + RETRY_MS as Micros * 1000;
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
            assert!(!site.queue.iter().any(is_late), "nobody looked at {lock}");
            let is_snoozed = self.is_held_back || self.model.now < self.snoozed_until;
            assert!(
                is_snoozed || self.model.is_settled(lock),
                "nobody looked at {lock}"
            );
        }
    }

    pub fn leave(&mut self, lock: usize, place: usize) {
        let queue = &self.model.locks[lock].queue;
        if queue.is_empty() {
            return;
        }
        let client = queue[place % queue.len()].client;
        self.done[client] = true;
        self.server.client_leaves(lock, client);
        self.model.leave(lock, client);
    }

    pub fn break_lock(&mut self, how: Break) {
        let model = &mut self.model;
        match how {
            Break::Delete(lock) => {
                self.server.delete(lock);
                model.locks[lock].lock.holders.clear();
            }
            Break::Rename { from, to } if from == to => {}
            Break::Rename { from, to } => {
                self.may_be_stuck = true;
                self.server.rename(from, to);
                let holders = std::mem::take(&mut model.locks[from].lock.holders);
                model.locks[to].lock.holders = holders;
            }
            Break::Dump(lock) => {
                let (at, holders) = (model.now, model.live(lock).cloned().collect());
                let dump = |bytes| Dump { bytes, holders, at };
                self.dump = self.server.dump(lock).map(dump);
            }
            Break::Restore(lock) => {
                if let Some(dump) = &self.dump {
                    self.may_be_stuck = true;
                    self.server.restore(lock, &dump.bytes);
                    model.restore(lock, &dump.holders, dump.at);
                }
            }
            Break::OtherType(lock) => {
                self.server.delete(lock);
                self.server.drain(lock, "WRONGTYPE");
                model.locks[lock].lock.holders.clear();
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
        let (mut told, mut expected) = (self.server.take_told(), std::mem::take(&mut self.model.told));
        let by_client = |told: &(Client, Told)| told.0;
        told.sort_by_key(by_client);
        expected.sort_by_key(by_client);
        assert_eq!(told, expected, "after {step:?}");
        for (client, told) in told {
            assert!(!self.done[client], "a second answer after {step:?}: {told:?}");
            self.done[client] = true;
            self.note(client, told);
        }
        for lock in 0..self.model.locks.len() {
            let (fixture, expected) = (self.server.fixture(lock), self.model.fixture(lock));
            assert_eq!(fixture, expected, "lock {lock} after {step:?}");
            let waits = expected.queue.iter().map(|waiter| waiter.client);
            { waits }.for_each(|client| assert!(!self.done[client], "answered, and waits on"));
            self.check_alarm(lock);
        }
        self.check_nobody_is_stuck(step);
    }

    /// Only a request that blocks makes a deadlock, and it is refused.
    fn check_nobody_is_stuck(&mut self, step: &dyn std::fmt::Debug) {
        self.may_be_stuck |= self.somebody_can_fall_behind();
        if !self.may_be_stuck {
            let stuck = self.model.waiting_for_ever();
            assert!(stuck.is_empty(), "{stuck:?} after {step:?}");
        }
    }

    /// The exceptions: an owner that waits twice for a lock, when its first request leaves; and a holder that
    /// waits for the end of a grace to re-enter, when its hold ends.
    fn somebody_can_fall_behind(&self) -> bool {
        self.model.locks.iter().enumerate().any(|(lock, site)| {
            let owners: BTreeSet<u8> = site.queue.iter().map(|waiter| waiter.owner).collect();
            let waits = |holder: &Holder| owners.contains(&holder.owner);
            owners.len() < site.queue.len() || self.model.live(lock).any(waits)
        })
    }

    /// Somebody must look at a lock at the latest when it changes, or when somebody gives up waiting.
    fn check_alarm(&self, lock: usize) {
        let is_snoozed = self.is_held_back || self.model.now < self.snoozed_until;
        let change = if is_snoozed {
            let queue = &self.model.locks[lock].queue;
            queue.iter().filter_map(Waiter::deadline).min()
        } else {
            self.model.next_change(lock)
        };
        if let Some(change) = change {
            let alarm = self.server.next_wakeup();
            assert!(
                alarm.is_some_and(|alarm| alarm <= change),
                "{alarm:?} for {change}"
            );
        }
    }

    fn note(&mut self, client: Client, told: Told) {
        let Ask { lock, request, .. } = self.asks[client];
        self.memories[lock].note(request.owner, &told.answer);
        let waited = client + 1 < self.asks.len();
        if let (Action::Acquire { name, .. }, Answer::Granted { fence, .. }) = (request.action, told.answer)
            && waited
            && std::mem::take(&mut self.one_vanishes)
        {
            self.undelivered.push(Undelivered {
                lock,
                owner: request.owner,
                fence,
                name,
            });
        }
    }

    /// Time passes until everybody has an answer: nobody is lost, and nothing is left behind.
    pub fn finish(&mut self) {
        const A_LONG_LEASE: Micros = 1_000_000;
        self.step(Step::HeldBack(false));
        self.step(Step::Evictable(false));
        let everybody_is_done = |pair: &Self| pair.done.iter().all(|done| *done);
        for _ in 0..=self.asks.len() {
            self.step(Step::Pass(Pass::Micros(A_LONG_LEASE)));
            self.step(Step::Ring);
            if everybody_is_done(self) {
                break;
            }
        }
        assert!(everybody_is_done(self), "somebody never got an answer");
        assert!(
            self.server.engine.wait_table.is_empty() && self.server.engine.wait_table.next_wakeup().is_none()
        );
        assert_eq!(self.server.engine.wait_table.longest_since(), None);
        let mut owners = self.asks.iter().map(|ask| owner_bytes(ask.request.owner));
        assert!(
            !owners.any(|owner| self.server.engine.wait_table.involves(owner)),
            "somebody is still said to wait, or to hold what is waited for"
        );
    }
}

/// A link of a cycle in plain words.
struct Link {
    owner: u8,
    queued_ahead: Option<u8>,
    claims: usize,
    waits_for: usize,
}

impl Link {
    fn of(link: &crate::deadlock::Link) -> Self {
        let lock = |key: &[u8]| KEYS.iter().position(|known| known.as_bytes() == key);
        Self {
            owner: owner_number(&link.owner),
            queued_ahead: match &link.claim {
                Claim::Holds => None,
                Claim::QueuedAhead(other) => Some(owner_number(other)),
            },
            claims: lock(&link.claims).expect("a lock of this server"),
            waits_for: lock(&link.waits_for).expect("a lock of this server"),
        }
    }
}
