//! The model: several locks with queues, written from the contract and from nothing else.
//!
//! A waiter is a request that is made again whenever its lock is looked at, until it is granted, refused, or
//! given up. What a request for one lock comes to, the model of one lock says.

use super::super::naive::{Holder, Model as OneLock};
use super::super::ops::{Action, Answer, Limit, Micros, Request};
use super::ops::{Ask, Block, Client, Fixture, Told, Undelivered, Waiter};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: Micros,
    pub grace_end: Option<Micros>,
    pub evictable: bool,
    pub last_fence: u64,
    pub max_waiters: usize,
    pub detect_deadlocks: bool,
    pub locks: Vec<Site>,
    /// What clients were told, oldest first.
    pub told: Vec<(Client, Told)>,
}

#[derive(Clone, Debug, Default)]
pub struct Site {
    pub lock: OneLock,
    pub queue: Vec<Waiter>,
}

impl Model {
    pub fn ask(&mut self, client: Client, ask: &Ask) {
        match ask.request.action {
            Action::Acquire { .. } => self.acquire(client, ask),
            _ => self.other(client, ask),
        }
    }

    /// The queue comes first. A new owner is granted only when nobody stands in it.
    fn acquire(&mut self, client: Client, ask: &Ask) {
        self.serve(ask.lock);
        let overtakes = !self.locks[ask.lock].queue.is_empty() && !self.holds(ask.lock, ask.request.owner);
        let before = (self.locks[ask.lock].lock.clone(), self.last_fence);
        let mut answer = self.try_now(ask.lock, &ask.request);
        if overtakes && matches!(answer, Answer::Granted { .. }) {
            (self.locks[ask.lock].lock, self.last_fence) = before;
            answer = Answer::NotGranted;
        }
        match answer {
            Answer::NotGranted | Answer::Error("GRACE", _) if ask.block != Block::No => {
                self.wait(client, ask);
            }
            answer => self.tell(client, answer, 0),
        }
    }

    fn wait(&mut self, client: Client, ask: &Ask) {
        let Action::Acquire {
            lease_ms,
            limit,
            name,
        } = ask.request.action
        else {
            panic!("only an ACQUIRE waits: {ask:?}")
        };
        let owner = ask.request.owner;
        let waiter = Waiter {
            client,
            owner,
            limit,
            lease_ms,
            name,
            since: self.now,
            block: ask.block,
        };
        let queue = &mut self.locks[ask.lock].queue;
        let same = |other: &&mut Waiter| name.is_some() && (other.owner, other.name) == (owner, name);
        if let Some(other) = queue.iter_mut().find(same) {
            if other.limit != limit {
                return self.tell(client, Answer::Error("ERR", 0), 0);
            }
            let replaced = std::mem::replace(other, waiter).client;
            return self.tell(replaced, Answer::Error("UNBLOCKED", 0), 0);
        }
        if queue.len() >= self.max_waiters {
            return self.tell(client, Answer::Error("QUEUEFULL", self.max_waiters as u64), 0);
        }
        let may_be_in_the_way = self.detect_deadlocks && self.is_involved(owner, ask.lock);
        self.locks[ask.lock].queue.push(waiter);
        if may_be_in_the_way && self.waits_for_ever(client) {
            self.locks[ask.lock].queue.pop();
            self.tell(client, Answer::Error("DEADLOCK", 0), 0);
        }
    }

    /// RELEASE and EXTEND. They do what they do, and then the queue is looked at, whatever came of it.
    fn other(&mut self, client: Client, ask: &Ask) {
        let (lock, owner) = (ask.lock, ask.request.owner);
        let had = match ask.request.action {
            Action::ReleaseNamed(name) => self.has_hold(lock, owner, Some(name)),
            _ => true,
        };
        let answer = self.try_now(lock, &ask.request);
        self.tell(client, answer, 0);
        if let (Action::ReleaseNamed(name), false, Answer::Holds(_)) = (ask.request.action, had, answer) {
            let queue = &mut self.locks[lock].queue;
            let withdrawn = queue
                .iter()
                .position(|waiter| (waiter.owner, waiter.name) == (owner, Some(name)));
            if let Some(place) = withdrawn {
                let waiter = queue.remove(place);
                self.tell(waiter.client, Answer::NotGranted, 0);
            }
        }
        self.serve(lock);
    }

    /// Somebody looks after a lock, though nobody asks for it.
    pub fn on_timer(&mut self, lock: usize) {
        self.give_up_waiting(lock);
        self.serve(lock);
    }

    pub fn give_up_waiting(&mut self, lock: usize) {
        let now = self.now;
        let is_late = |waiter: &Waiter| waiter.deadline().is_some_and(|deadline| deadline <= now);
        while let Some(place) = self.locks[lock].queue.iter().position(is_late) {
            let waiter = self.locks[lock].queue.remove(place);
            self.tell(waiter.client, Answer::NotGranted, 0);
        }
    }

    /// Lets in all that can be let in.
    fn serve(&mut self, lock: usize) {
        if self.is_grace() {
            return;
        }
        self.give_up_waiting(lock);
        while let Some((place, answer)) = self.next_answer(lock) {
            let waiter = self.locks[lock].queue.remove(place);
            let waited_ms = match answer {
                Answer::Granted { .. } => (self.now - waiter.since) as u64 / 1000,
                _ => 0,
            };
            self.tell(waiter.client, answer, waited_ms);
        }
    }

    /// A holder that waits comes at once, else it is the turn of the first.
    fn next_answer(&mut self, lock: usize) -> Option<(usize, Answer)> {
        let queue = &self.locks[lock].queue;
        let holder = queue.iter().position(|waiter| self.holds(lock, waiter.owner));
        let place = holder.unwrap_or(0);
        let ask = queue.get(place)?.ask(lock);
        match self.try_now(lock, &ask.request) {
            Answer::NotGranted => None,
            answer => Some((place, answer)),
        }
    }

    /// What one lock without a queue would answer.
    fn try_now(&mut self, lock: usize, request: &Request) -> Answer {
        let one = &mut self.locks[lock].lock;
        one.now = self.now;
        one.grace_end = self.grace_end;
        one.evictable = self.evictable;
        one.last_fence = self.last_fence;
        let answer = one.ask(request);
        self.last_fence = one.last_fence;
        answer
    }

    /// A client is gone, and takes no answer any more.
    pub fn leave(&mut self, lock: usize, client: Client) {
        self.locks[lock].queue.retain(|waiter| waiter.client != client);
    }

    /// Exactly that hold is given back, if it is still there.
    pub fn rollback_grant(&mut self, hold: &Undelivered) {
        let same_grant = self
            .live(hold.lock)
            .any(|holder| (holder.owner, holder.fence) == (hold.owner, hold.fence));
        if same_grant && self.has_hold(hold.lock, hold.owner, hold.name) {
            let request = match hold.name {
                Some(name) => Request::release_named(hold.owner, name),
                None => Request::release(hold.owner),
            };
            self.try_now(hold.lock, &request);
        }
        self.serve(hold.lock);
    }

    /// All who wait for this lock are told the same.
    pub fn drain(&mut self, lock: usize, code: &'static str) {
        for waiter in std::mem::take(&mut self.locks[lock].queue) {
            self.tell(waiter.client, Answer::Error(code, 0), 0);
        }
    }

    /// A grace begins, or the one that runs becomes longer. The leases of those who hold run to its end.
    pub fn begin_grace(&mut self, grace_ms: u64) {
        let end = self.grace_end.max(Some(self.now + grace_ms as Micros * 1000));
        self.grace_end = end;
        for site in &mut self.locks {
            site.lock.holders.retain(|holder| holder.lease_end > self.now);
            for holder in &mut site.lock.holders {
                holder.lease_end = holder.lease_end.max(end.unwrap_or_default());
            }
        }
    }

    /// A lock as it was at another time: ages and leases in whole milliseconds, a lease never shorter.
    pub fn restore(&mut self, lock: usize, holders: &[Holder], at: Micros) {
        let now = self.now;
        let grace_end = self.grace_end.unwrap_or(now);
        let restored = holders.iter().cloned().map(|holder| Holder {
            since: now - (at - holder.since) / 1000 * 1000,
            lease_end: grace_end.max(now + (holder.lease_end - at + 999) / 1000 * 1000),
            ..holder
        });
        self.locks[lock].lock.holders = restored.collect();
    }

    fn tell(&mut self, client: Client, answer: Answer, waited_ms: u64) {
        self.told.push((client, Told { answer, waited_ms }));
    }

    fn is_grace(&self) -> bool {
        self.grace_end.is_some_and(|end| end > self.now)
    }

    pub fn live(&self, lock: usize) -> impl Iterator<Item = &Holder> {
        self.locks[lock]
            .lock
            .holders
            .iter()
            .filter(|holder| holder.lease_end > self.now)
    }

    fn holds(&self, lock: usize, owner: u8) -> bool {
        self.live(lock).any(|holder| holder.owner == owner)
    }

    fn has_hold(&self, lock: usize, owner: u8, name: Option<u8>) -> bool {
        self.live(lock)
            .any(|holder| holder.owner == owner && holder.holds.contains(&name))
    }

    pub fn fixture(&self, lock: usize) -> Fixture {
        let mut one = self.locks[lock].lock.clone();
        one.now = self.now;
        Fixture {
            holders: one.view(),
            queue: self.locks[lock].queue.clone(),
        }
    }

    /// Whether nothing is left to do for this lock at this cx. That eviction is unsafe nobody needs to be
    /// told before its turn.
    pub fn is_settled(&self, lock: usize) -> bool {
        let mut later = Self {
            now: self.now,
            grace_end: self.grace_end,
            locks: vec![self.locks[lock].clone()],
            ..Self::default()
        };
        later.on_timer(0);
        later.told.is_empty()
    }

    /// When this lock changes by itself, if somebody waits for it.
    pub fn next_change(&self, lock: usize) -> Option<Micros> {
        let queue = &self.locks[lock].queue;
        if queue.is_empty() {
            return None;
        }
        if !self.is_settled(lock) {
            return Some(self.now);
        }
        let deadlines = queue.iter().filter_map(Waiter::deadline);
        let lease_ends = self.live(lock).map(|holder| holder.lease_end);
        let grace_end = self.grace_end.filter(|end| *end > self.now);
        deadlines.chain(lease_ends).chain(grace_end).min()
    }

    /// An owner that holds nothing that is waited for, and waits nowhere else, cannot be in anybody's way: no
    /// search is made for it.
    fn is_involved(&self, owner: u8, but_for: usize) -> bool {
        let involved = |lock: usize| {
            let queue = &self.locks[lock].queue;
            let waits = queue.iter().any(|waiter| waiter.owner == owner);
            waits || !queue.is_empty() && self.holds(lock, owner)
        };
        (0..self.locks.len()).any(|lock| lock != but_for && involved(lock))
    }

    fn waits_for_ever(&self, client: Client) -> bool {
        self.waiting_for_ever()
            .iter()
            .any(|waiter| waiter.client == client)
    }

    /// Who still waits when every owner that does not wait has given up all it holds, those who are let in
    /// by this do so in their turn, and so on.
    pub fn waiting_for_ever(&self) -> Vec<Waiter> {
        let mut locks: Vec<Reduced> = (0..self.locks.len())
            .map(|lock| Reduced {
                holders: self
                    .live(lock)
                    .map(|holder| (holder.owner, holder.limit))
                    .collect(),
                queue: self.locks[lock].queue.clone(),
            })
            .collect();
        loop {
            let before = locks.clone();
            locks.iter_mut().for_each(Reduced::let_in);
            let waiting: Vec<u8> = locks
                .iter()
                .flat_map(|lock| &lock.queue)
                .map(|waiter| waiter.owner)
                .collect();
            for lock in &mut locks {
                lock.holders.retain(|(owner, _)| waiting.contains(owner));
            }
            if locks == before {
                return locks.into_iter().flat_map(|lock| lock.queue).collect();
            }
        }
    }
}

/// A lock in a world in which everybody gives up what they can.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reduced {
    holders: Vec<(u8, Limit)>,
    queue: Vec<Waiter>,
}

impl Reduced {
    fn let_in(&mut self) {
        loop {
            let held = |owner: u8| self.holders.iter().any(|(holder, _)| *holder == owner);
            self.queue.retain(|waiter| !held(waiter.owner));
            let Some(first) = self.queue.first() else { return };
            let after = self.holders.len() as u64 + 1;
            let limits = self.holders.iter().map(|(_, limit)| *limit);
            if limits
                .chain([first.limit])
                .flatten()
                .any(|limit| after > u64::from(limit))
            {
                return;
            }
            self.holders.push((first.owner, first.limit));
        }
    }
}
