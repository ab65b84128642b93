//! A server with several locks, their queues, and a replica: driven as the module's shell drives the core,
//! and checked after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::holders::{assert_sound, who};
use dlock_core::{
    Acquire, Acquired, Answer, Effects, Engine, Error, Extend, Granted, Holder, Instant, Lock, LockName,
    Queue, Release, Replication, Ticket, Transition, TransitionContext, WaitPolicy, WallClock, decode_lock,
    encode_lock,
};

/// A wall clock in 2025, so that fences are as long as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
/// So few that queues become full.
const POLICY: WaitPolicy = WaitPolicy {
    max_waiters: 6,
    detect_deadlocks: true,
};

pub struct Server {
    engine: Engine,
    locks: Vec<(LockName, Lock)>,
    /// What a replica has, that is told of every step at once.
    replica: Vec<Lock>,
    replica_engine: Engine,
    pub cx: TransitionContext,
    /// Those who wait for an answer: ticket, and the place of the lock.
    open: BTreeMap<Ticket, usize>,
    highest_fence: u64,
    /// The fences of those who were let in from the queue by the last step.
    let_in: BTreeSet<u64>,
}

impl Server {
    pub fn with_locks(count: u8) -> Self {
        let mut engine = Engine::starting();
        engine.advance_fences_if_pending(WallClock::from_unix_ms(UNIX_MS), 0);
        let name = |number: u8| LockName {
            db: i32::from(number % 2),
            key: [b'k', number].as_slice().into(),
        };
        Self {
            locks: (0..count).map(|number| (name(number), Lock::default())).collect(),
            replica: vec![Lock::default(); usize::from(count)],
            highest_fence: engine.fences.known(),
            engine,
            replica_engine: Engine::starting(),
            cx: TransitionContext::at(Instant::from_micros(123_456)),
            open: BTreeMap::new(),
            let_in: BTreeSet::new(),
        }
    }

    pub fn lock(&self, place: usize) -> &Lock {
        &self.locks[place].1
    }

    /// A request that blocks lets go first what is due anywhere, as in the module.
    pub fn acquire(&mut self, place: usize, request: &Acquire<'_>) {
        if request.block.is_some() {
            self.ring();
        }
        let before = self.live(place);
        match self.step(place, None, |transition| transition.acquire(request, POLICY)) {
            Ok(Acquired::Granted(granted)) => self.check_grant(place, request, &granted, &before),
            Ok(Acquired::NotGranted) => assert_eq!(request.block, None),
            // Its place is the one of the request that it replaces.
            Ok(Acquired::Queued(enqueued)) => {
                let former = self.open.insert(enqueued.ticket, place);
                assert_eq!(former.is_some(), enqueued.replaced);
            }
            Err(error) => assert_one_line(&error),
        }
        self.check();
    }

    pub fn release(&mut self, place: usize, request: &Release<'_>) {
        let _ = self.step(place, Some(request), |transition| {
            transition.release(request).inspect_err(assert_one_line)
        });
        self.check();
    }

    /// A hold is given back whose client has gone.
    pub fn rollback_grant(&mut self, place: usize, request: &Release<'_>) {
        self.step(place, Some(request), |transition| {
            transition.rollback_grant(request)
        });
        self.check();
    }

    pub fn extend(&mut self, place: usize, request: &Extend<'_>) {
        let _ = self.step(place, None, |transition| {
            transition.extend(request).inspect_err(assert_one_line)
        });
        self.check();
    }

    /// Looks after every queue that is due. After that, nobody waits who could be let in.
    pub fn ring(&mut self) {
        let mut looks = 0;
        while let Some(name) = self.engine.wait_table.next_due(self.cx.now) {
            looks += 1;
            assert!(looks <= 2 * self.locks.len(), "{name:?} stays due");
            let place = self
                .locks
                .iter()
                .position(|(other, _)| *other == name)
                .expect("one of ours");
            self.on_timer(place);
        }
        self.check();
        (0..self.locks.len()).for_each(|place| self.check_nobody_is_forgotten(place));
    }

    /// A lease has ended, or somebody has to look.
    pub fn on_timer(&mut self, place: usize) {
        self.step(place, None, |transition| transition.on_timer());
    }

    /// The client of one waiter is gone.
    pub fn leave(&mut self, choice: usize) {
        if let Some((&ticket, &place)) = self.open.iter().nth(choice % self.open.len().max(1)) {
            self.engine
                .wait_table
                .remove_waiter(self.locks[place].0.as_ref(), ticket);
            self.open.remove(&ticket);
        }
        self.check();
    }

    /// The lock has moved to another node: all its waiters are sent away.
    pub fn drain(&mut self, place: usize) {
        for ticket in self.engine.wait_table.drain(self.locks[place].0.as_ref()) {
            assert_eq!(self.open.remove(&ticket), Some(place));
        }
        self.check();
    }

    /// An administrator puts another lock under the name, or none.
    pub fn replace(&mut self, place: usize, lock: Lock) {
        self.replica[place] = lock.clone();
        self.locks[place].1 = lock;
        let name = self.locks[place].0.as_ref();
        self.engine.wait_table.schedule(name, Instant::DISTANT_PAST);
    }

    /// The server starts again from what it stored, or its replica takes over. Nobody waits any more.
    pub fn take_over(&mut self, by_replica: bool) {
        for place in 0..self.locks.len() {
            self.drain(place);
            let lock = if by_replica {
                &self.replica[place]
            } else {
                &self.locks[place].1
            };
            let stored = encode_lock(lock, &self.cx);
            let read = match lock.is_free() {
                true => Lock::default(),
                false => decode_lock(&stored, self.cx.now).expect("it was stored"),
            };
            assert_eq!(who(&read), who(lock));
            self.replica[place] = read.clone();
            self.locks[place].1 = read;
        }
        assert!(
            self.engine.wait_table.is_empty()
                && self.engine.wait_table.next_wakeup().is_none()
                && self.open.is_empty()
        );
    }

    /// A grace begins, or the one that runs becomes longer.
    pub fn begin_grace(&mut self) {
        let cx = &mut self.cx;
        if cx.grace_end <= cx.now {
            cx.grace_begin = cx.now;
        }
        cx.grace_end = cx.now.after_ms(4);
    }

    fn step<R>(
        &mut self,
        place: usize,
        as_it_came: Option<&Release<'_>>,
        step: impl FnOnce(&mut Transition<'_>) -> R,
    ) -> R {
        let before = self.live(place);
        let mut effects = Effects::default();
        let (name, lock) = &mut self.locks[place];
        let result = step(&mut self.engine.begin(name.as_ref(), lock, &self.cx, &mut effects));
        self.deliver(place, &effects, &before);
        self.tell_replica(place, &effects, as_it_came);
        result
    }

    /// Every answer goes to somebody who waits for one, and nobody is let in before those who came earlier.
    fn deliver(&mut self, place: usize, effects: &Effects, before: &BTreeSet<Vec<u8>>) {
        let queue = self.engine.wait_table.queue(self.locks[place].0.as_ref());
        let first_left = queue.and_then(|queue| queue.iter().next().map(|(ticket, _)| ticket));
        let mut first_of = BTreeMap::new();
        for wake in &effects.wakes {
            assert_eq!(self.open.remove(&wake.ticket), Some(place), "{wake:?}");
            if let Answer::Granted(granted) = &wake.answer {
                let first = first_of.entry(granted.fence).or_insert(wake.ticket);
                *first = wake.ticket.min(*first);
            }
        }
        self.let_in = first_of.keys().copied().collect();
        for (fence, first) in first_of {
            let holder = self.holder_of(place, fence);
            assert!(self.cx.is_live(holder));
            let is_new = !before.contains(holder.owner());
            assert!(
                !is_new || first_left.is_none_or(|left| first < left),
                "{holder:?} overtook {first_left:?}"
            );
        }
    }

    fn tell_replica(&mut self, place: usize, effects: &Effects, as_it_came: Option<&Release<'_>>) {
        let (replica, mut news) = (&mut self.replica[place], Effects::default());
        let (name, engine) = (self.locks[place].0.as_ref(), &mut self.replica_engine);
        let mut transition = engine.begin(name, replica, &self.cx, &mut news);
        match effects.replication {
            Replication::Nothing => {}
            Replication::Verbatim => {
                let request = as_it_came.expect("only a RELEASE goes as it came");
                transition.apply_release(request).expect("it happened here");
            }
            Replication::Change => {
                transition
                    .apply(effects.change())
                    .expect("a change that a step wrote");
            }
        }
        let lock = &self.locks[place].1;
        assert_eq!(who(replica), who(lock));
        for (theirs, ours) in replica.holders().iter().zip(lock.holders()) {
            // When those that have ended did so, nobody remembers exactly once another grace has begun.
            let ended = !self.cx.is_live(ours);
            assert!(ended || self.cx.lease_end(theirs) >= self.cx.lease_end(ours));
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
        // A holder re-enters ahead of all; so does one whom this request has let in from the queue first.
        if !before.contains(request.owner) && !self.let_in.contains(&granted.fence) {
            assert!(
                self.engine
                    .wait_table
                    .queue(self.locks[place].0.as_ref())
                    .is_none(),
                "overtook those who wait"
            );
        }
    }

    /// What is true after every step.
    fn check(&mut self) {
        for (place, (name, lock)) in self.locks.iter().enumerate() {
            assert_sound(lock);
            let queued = self
                .engine
                .wait_table
                .queue(name.as_ref())
                .into_iter()
                .flat_map(Queue::iter)
                .map(|(ticket, _)| ticket);
            let open = self
                .open
                .iter()
                .filter(|(_, at)| **at == place)
                .map(|(ticket, _)| *ticket);
            assert!(
                queued.eq(open),
                "those who wait for {name:?} are not those who stand in its queue"
            );
        }
        assert_eq!(self.engine.wait_table.waiters(), self.open.len());
        assert!(self.engine.fences.known() >= self.highest_fence);
        self.highest_fence = self.engine.fences.known();
    }

    /// The first in a queue is one who cannot be let in now, by a rule stated apart from the code.
    fn check_nobody_is_forgotten(&self, place: usize) {
        let (name, lock) = &self.locks[place];
        let Some(queue) = self.engine.wait_table.queue(name.as_ref()) else {
            return;
        };
        assert!(
            self.engine
                .wait_table
                .next_wakeup()
                .is_none_or(|at| at > self.cx.now)
        );
        if self.cx.grace_end > self.cx.now {
            return;
        }
        let live: Vec<&Holder> = lock
            .holders()
            .iter()
            .filter(|holder| self.cx.is_live(holder))
            .collect();
        for (_, waiter) in queue.iter() {
            assert!(
                live.iter().all(|holder| holder.owner() != waiter.owner()),
                "{waiter:?} holds {name:?}"
            );
        }
        let (_, first) = queue.iter().next().expect("an empty queue is none");
        let limits = live.iter().map(|holder| holder.limit()).chain([first.limit()]);
        let fits = limits.min().is_some_and(|limit| limit.allows(live.len() + 1));
        assert!(!fits, "{first:?} is forgotten at {name:?}");
    }

    fn live(&self, place: usize) -> BTreeSet<Vec<u8>> {
        let live = self
            .lock(place)
            .holders()
            .iter()
            .filter(|holder| self.cx.is_live(holder));
        live.map(|holder| holder.owner().to_vec()).collect()
    }

    fn holder_of(&self, place: usize, fence: u64) -> &Holder {
        let holder = self
            .lock(place)
            .holders()
            .iter()
            .find(|holder| holder.fence() == fence);
        holder.expect("who was granted the lock holds it")
    }
}

fn assert_one_line(refusal: &Error) {
    let text = refusal.to_string();
    assert!(
        text.starts_with(refusal.code()) && !text.contains(['\r', '\n']),
        "{text}"
    );
}
