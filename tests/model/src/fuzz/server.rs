//! A server with several locks, their queues, and a replica. It drives the core as the module does, and is checked
//! after every transition.

use std::collections::{BTreeMap, BTreeSet};

use super::holders::{assert_sound, who};
use crate::outside::Outside;
use dlock_core::{
    Acquire, Acquired, Answer, Call, Effects, Error, Extend, GraceLength, GraceSettings, Granted, Guard,
    Holder, Instant, LeaseClock, Lock, LockName, Policy, Queue, Release, Reply, ServerState, Transition,
    decode_lock, encode_lock,
};

/// A time in 2025, so that fences have as many digits as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
/// With a startup grace period of this length, which never starts, any MINFENCE is accepted.
const ANY: GraceLength = GraceLength::Ms(u64::MAX);
const POLICY: Policy = Policy {
    // A small maximum, so that queues become full.
    max_waiters_per_lock: 6,
    max_waiters: usize::MAX,
    is_quorum: true,
    graces: GraceSettings {
        startup: ANY,
        failover: ANY,
    },
    detect_deadlocks: true,
    evictable: false,
};

static OUTSIDE: Outside = Outside::at_unix_ms(UNIX_MS);

pub struct Server {
    state: ServerState,
    locks: Vec<(LockName, Lock)>,
    /// The locks on a replica that does not lag.
    replica: Vec<Lock>,
    replica_state: ServerState,
    now: Instant,
    /// The waiters without a reply, with the index of their lock.
    waiting: BTreeMap<Call, usize>,
    highest_fence: u64,
    /// The fences that the last transition granted to waiters.
    granted_waiters: BTreeSet<u64>,
}

impl Server {
    pub fn with_locks(count: u8) -> Self {
        let (mut state, now) = (ServerState::default(), Instant::from_micros(123_456));
        state.tick(&OUTSIDE.inputs(now));
        state.set_policy(POLICY);
        let name = |number: u8| LockName {
            db: i32::from(number % 2),
            key: [b'k', number].as_slice().into(),
        };
        Self {
            locks: (0..count).map(|number| (name(number), Lock::default())).collect(),
            replica: vec![Lock::default(); usize::from(count)],
            highest_fence: state.fences.known(),
            state,
            replica_state: ServerState::default(),
            now,
            waiting: BTreeMap::new(),
            granted_waiters: BTreeSet::new(),
        }
    }

    fn clock(&self) -> LeaseClock {
        self.state.clock(self.now)
    }

    pub fn pass(&mut self, micros: i64) {
        self.now = Instant::from_micros(self.now.as_micros() + micros);
    }

    pub fn toggle_evictable(&mut self) {
        let policy = *self.state.policy();
        self.state.set_policy(Policy {
            evictable: !policy.evictable,
            ..policy
        });
    }

    pub fn known_fence(&self) -> u64 {
        self.state.fences.known()
    }

    pub fn lock(&self, place: usize) -> &Lock {
        &self.locks[place].1
    }

    /// Before a request that blocks, all due queues are processed, as in the module.
    pub fn acquire(&mut self, place: usize, request: &Acquire<'_>) {
        if request.wait.is_some() {
            self.process_due();
        }
        let before = self.live(place);
        match self.step(place, |transition| transition.acquire(request, b"", true)) {
            Ok(Acquired::Granted(granted)) => self.check_grant(place, request, &granted, &before),
            Ok(Acquired::NotGranted) => assert_eq!(request.wait, None),
            // The waiter was parked.
            Ok(Acquired::Queued(_)) => assert_ne!(request.wait, None),
            Err(error) => assert_one_line(&error),
        }
        self.check();
    }

    pub fn release(&mut self, place: usize, request: &Release<'_>) {
        let _ = self.step(place, |transition| {
            transition.release(request).inspect_err(assert_one_line)
        });
        self.check();
    }

    /// The client of a grant has disconnected.
    pub fn rollback_grant(&mut self, place: usize, request: &Release<'_>) {
        self.step(place, |transition| transition.rollback_grant(request));
        self.check();
    }

    pub fn extend(&mut self, place: usize, request: &Extend<'_>) {
        let _ = self.step(place, |transition| {
            transition.extend(request).inspect_err(assert_one_line)
        });
        self.check();
    }

    /// Only a live holder passes, under its own fence.
    pub fn guard(&self, place: usize, request: &Guard<'_>) {
        let (lock, clock) = (self.lock(place), self.clock());
        let caller = (request.owner, request.fence);
        let is_caller =
            |holder: &&Holder| holder.is_live(clock) && (holder.owner(), holder.fence()) == caller;
        let left = |holder: &Holder| clock.now.ms_until(holder.lease_end(clock));
        let checked = request.check(lock, clock).inspect_err(assert_one_line).ok();
        assert_eq!(checked, lock.holders().iter().find(is_caller).map(left));
    }

    /// Processes all due queues. Afterwards no waiter could be granted.
    pub fn process_due(&mut self) {
        let mut processed = 0;
        while let Some(name) = self.state.wait_table.next_due(self.now) {
            processed += 1;
            assert!(processed <= 2 * self.locks.len(), "{name:?} stays due");
            let place = self.locks.iter().position(|(other, _)| *other == name);
            self.on_timer(place.expect("a lock of this server"));
        }
        self.check();
        (0..self.locks.len()).for_each(|place| self.check_first_waiter(place));
    }

    pub fn on_timer(&mut self, place: usize) {
        self.step(place, |transition| transition.on_timer());
    }

    /// The client of a waiter disconnects.
    pub fn disconnect(&mut self, choice: usize) {
        if let Some((&call, _)) = self.waiting.iter().nth(choice % self.waiting.len().max(1)) {
            self.state.lose_reader(call, self.now);
            self.waiting.remove(&call);
        }
        self.check();
    }

    /// The lock has migrated to another node: all its waiters get an error.
    pub fn drain(&mut self, place: usize) {
        let (name, mut effects) = (self.locks[place].0.as_ref(), Effects::default());
        self.state
            .turn_away_waiters(name, "MOVED", self.now, &mut effects);
        self.deliver(place, &mut effects, &BTreeSet::new());
        self.check();
    }

    /// DEL, RENAME, RESTORE: the name gets another value, or none.
    pub fn replace(&mut self, place: usize, lock: Lock) {
        self.replica[place] = lock.clone();
        self.locks[place].1 = lock;
        let name = self.locks[place].0.as_ref();
        self.state.wait_table.schedule(name, Instant::DISTANT_PAST);
    }

    /// The server restarts from its RDB file, or its replica is promoted. All waiters get an error.
    pub fn take_over(&mut self, by_replica: bool) {
        for place in 0..self.locks.len() {
            self.drain(place);
            let lock = if by_replica {
                &self.replica[place]
            } else {
                &self.locks[place].1
            };
            let stored = encode_lock(lock, self.clock());
            let read = match lock.is_free() {
                true => Lock::default(),
                false => decode_lock(&stored, self.now).expect("a lock that was encoded"),
            };
            assert_eq!(who(&read), who(lock));
            self.replica[place] = read.clone();
            self.locks[place].1 = read;
        }
        let waiters = &self.state.wait_table;
        assert!(waiters.is_empty() && waiters.next_wakeup().is_none() && self.waiting.is_empty());
    }

    /// A grace period starts, or the current one becomes longer.
    pub fn begin_grace(&mut self) {
        self.state.grace.restore(4, self.now);
    }

    fn step<R>(&mut self, place: usize, step: impl FnOnce(&mut Transition<'_>) -> R) -> R {
        let before = self.live(place);
        let (inputs, mut effects) = (OUTSIDE.inputs(self.now), Effects::default());
        let (name, lock) = &mut self.locks[place];
        let result = step(&mut self.state.begin(&inputs, name.as_ref(), lock, &mut effects));
        if let Some(call) = effects.parked.take() {
            assert_eq!(self.waiting.insert(call, place), None);
        }
        self.deliver(place, &mut effects, &before);
        self.replicate(place, &effects);
        result
    }

    /// Every answer is for a waiter, which gets it, and no waiter overtakes an earlier one.
    fn deliver(&mut self, place: usize, effects: &mut Effects, before: &BTreeSet<Vec<u8>>) {
        let queue = self.state.wait_table.queue(self.locks[place].0.as_ref());
        let first_waiting = queue.and_then(|queue| queue.iter().next().map(|(ticket, _)| ticket));
        let mut first_of = BTreeMap::new();
        for wake in &effects.wakes {
            let call = wake.waiter.inbox().call_of_block();
            assert_eq!(self.waiting.remove(&call), Some(place), "{wake:?}");
            if let Answer::Granted(granted) = &wake.answer {
                let first = first_of.entry(granted.fence).or_insert(wake.ticket);
                *first = wake.ticket.min(*first);
            }
        }
        let answers: Vec<Answer> = effects.wakes.iter().map(|wake| wake.answer.clone()).collect();
        self.state.deliver(effects);
        let replies = effects
            .calls
            .drain(..)
            .map(|call| self.state.inboxes.reply(call, self.now));
        for (reply, answer) in replies.zip(answers) {
            assert!(matches!(reply, Some(Reply::Answer(replied)) if replied == answer));
        }
        self.granted_waiters = first_of.keys().copied().collect();
        for (fence, first) in first_of {
            let holder = self.holder_of(place, fence);
            assert!(holder.is_live(self.clock()));
            let is_new = !before.contains(holder.owner());
            let is_expected = !is_new || first_waiting.is_none_or(|left| first < left);
            assert!(is_expected, "{holder:?} overtook {first_waiting:?}");
        }
    }

    fn replicate(&mut self, place: usize, effects: &Effects) {
        let clock = self.clock();
        let replica = &mut self.replica[place];
        if effects.is_changed {
            let change = effects.change().expect("a change that is encoded");
            self.replica_state
                .apply(self.now, replica, change, &mut Effects::default())
                .expect("a change that the primary encoded");
        }
        let lock = &self.locks[place].1;
        assert_eq!(who(replica), who(lock));
        for (theirs, ours) in replica.holders().iter().zip(lock.holders()) {
            // A later grace period makes the ends of expired leases inexact.
            let expired = !ours.is_live(clock);
            assert!(expired || theirs.lease_end(clock) >= ours.lease_end(clock));
        }
    }

    fn check_grant(
        &self,
        place: usize,
        request: &Acquire<'_>,
        granted: &Granted,
        before: &BTreeSet<Vec<u8>>,
    ) {
        let holder = self.holder_of(place, granted.fence);
        assert_eq!((holder.owner(), holder.holds()), (request.owner, granted.holds));
        assert_eq!(granted.waited_ms, 0);
        // Only a holder is granted ahead of the queue, including one whose waiting request was granted first.
        if !before.contains(request.owner) && !self.granted_waiters.contains(&granted.fence) {
            let queue = self.state.wait_table.queue(self.locks[place].0.as_ref());
            assert!(queue.is_none(), "overtook the queue");
        }
    }

    /// The invariants of every transition.
    fn check(&mut self) {
        for (place, (name, lock)) in self.locks.iter().enumerate() {
            assert_sound(lock);
            let queue = self.state.wait_table.queue(name.as_ref()).into_iter();
            let queued = queue
                .flat_map(Queue::iter)
                .map(|(_, waiter)| waiter.inbox().call_of_block());
            let waiting = self.waiting.iter().filter(|(_, at)| **at == place);
            let (queued, waiting): (BTreeSet<_>, BTreeSet<_>) =
                (queued.collect(), waiting.map(|(call, _)| *call).collect());
            assert_eq!(queued, waiting, "the queue of {name:?} has other waiters");
        }
        assert_eq!(self.state.wait_table.waiters(), self.waiting.len());
        assert!(self.state.fences.known() >= self.highest_fence);
        self.highest_fence = self.state.fences.known();
    }

    /// The first waiter of a queue cannot be granted now, by a rule that is independent of the code.
    fn check_first_waiter(&self, place: usize) {
        let (name, lock) = &self.locks[place];
        let waiters = &self.state.wait_table;
        let Some(queue) = waiters.queue(name.as_ref()) else {
            return;
        };
        assert!(waiters.next_wakeup().is_none_or(|at| at > self.now));
        let clock = self.clock();
        if clock.grace_left_ms().is_some() {
            return;
        }
        let holders = lock.holders().iter();
        let live: Vec<&Holder> = holders.filter(|holder| holder.is_live(clock)).collect();
        for (_, waiter) in queue.iter() {
            let is_expected = live.iter().all(|holder| holder.owner() != waiter.owner());
            assert!(is_expected, "{waiter:?} holds {name:?}");
        }
        let (_, first) = queue.iter().next().expect("a queue is not empty");
        let limits = live.iter().map(|holder| holder.limit()).chain([first.limit()]);
        let fits = limits.min().is_some_and(|limit| limit.allows(live.len() + 1));
        assert!(!fits, "{first:?} could be granted {name:?}");
    }

    fn live(&self, place: usize) -> BTreeSet<Vec<u8>> {
        let clock = self.clock();
        let holders = self.lock(place).holders().iter();
        let live = holders.filter(|holder| holder.is_live(clock));
        live.map(|holder| holder.owner().to_vec()).collect()
    }

    fn holder_of(&self, place: usize, fence: u64) -> &Holder {
        let mut holders = self.lock(place).holders().iter();
        let holder = holders.find(|holder| holder.fence() == fence);
        holder.expect("the holder that was granted")
    }
}

fn assert_one_line(error: &Error) {
    let text = error.to_string();
    let is_expected = text.starts_with(error.code()) && !text.contains(['\r', '\n']);
    assert!(is_expected, "{text}");
    assert!(text.len() < 4_096, "{} bytes", text.len());
}
