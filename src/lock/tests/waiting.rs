//! Several locks with queues: random schedules against a reference that reduces naively.
//!
//! After every step: nobody overtakes, nobody is lost, nobody is answered twice, the first waiter does not
//! fit, no holder waits for its own lock; and a request is refused with DEADLOCK exactly when it would wait
//! for ever.

use std::collections::BTreeSet;

use crate::lock::effects::{Answer, Effects};
use crate::lock::fence::{Fences, WallClock};
use crate::lock::limit::Limit;
use crate::lock::queue::{Queue, Ticket};
use crate::lock::request::{Acquire, Release, Share, Timeout};
use crate::lock::state::Lock;
use crate::lock::step::{Granted, Moment, acquire, release, tend};
use crate::lock::time::Instant;
use crate::lock::waiting::{LockName, NotQueued, Rules, Waiting};

const SCHEDULES: u64 = 10_000;
const STEPS: usize = 40;
const OWNERS: [&[u8]; 5] = [b"alice", b"bob", b"carol", b"dave", b"eve"];
const LIMITS: [Limit; 3] = [Limit::MUTEX, Limit::SHARED, Limit::MUTEX];
const RULES: Rules = Rules {
    max_waiters: 1_000,
    detect_deadlocks: true,
};

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// The server, as far as the core goes: it drives the steps as the shell does.
struct World {
    locks: Vec<Lock>,
    waiting: Waiting,
    fences: Fences,
    effects: Effects,
    now: Instant,
    outstanding: BTreeSet<Ticket>,
    deadlocks: usize,
}

impl World {
    fn new(locks: usize) -> Self {
        let mut fences = Fences::starting();
        fences.raise(WallClock::from_unix_ms(1_750_000_000_000), 0);
        Self {
            locks: vec![Lock::default(); locks],
            waiting: Waiting::new(),
            fences,
            effects: Effects::default(),
            now: Instant::from_micros(0),
            outstanding: BTreeSet::new(),
            deadlocks: 0,
        }
    }

    fn step<R>(
        &mut self,
        lock: usize,
        step: impl FnOnce(&mut Lock, &mut Queue, &Moment, &mut Fences, &mut Effects) -> R,
    ) -> R {
        let before = self.plain(lock);
        let (name, moment) = (name(lock), Moment::at(self.now));
        self.effects.clear();
        let mut queue = self.waiting.take(&name);
        let result = step(
            &mut self.locks[lock],
            &mut queue,
            &moment,
            &mut self.fences,
            &mut self.effects,
        );
        self.waiting.put_back(&name, queue, &self.locks[lock], &moment);
        self.check_answers(lock, &before);
        result
    }

    fn acquire(&mut self, lock: usize, owner: usize, limit: Limit, lease_ms: u64, timeout: Timeout) {
        // An owner that waits twice for one lock, and whose first request leaves, falls behind others: that
        // can end in a deadlock which no request has made. It is the one exception, and left out here.
        let queue = self.waiting.queue(&name(lock));
        if queue.is_some_and(|queue| queue.has(OWNERS[owner])) {
            return;
        }
        let request = Acquire {
            owner: OWNERS[owner],
            lease_ms,
            limit,
            block: Some(timeout),
            request_id: None,
        };
        let granted: Option<Granted> = self
            .step(lock, |lock, queue, moment, fences, effects| {
                acquire(lock, queue, &request, moment, fences, effects)
            })
            .unwrap_or_default();
        let holds = self.locks[lock].get(OWNERS[owner]).is_some();
        if granted.is_none() && !holds {
            self.enqueue(lock, &request, timeout);
        }
    }

    fn enqueue(&mut self, lock: usize, request: &Acquire<'_>, timeout: Timeout) {
        let would_hang = self.hangs_with(lock, request);
        let queued_before = self.waiting.waiters();
        let (name, moment) = (name(lock), Moment::at(self.now));
        match self
            .waiting
            .enqueue(&name, &self.locks[lock], request, timeout, &moment, RULES)
        {
            Ok(enqueued) => {
                assert!(!would_hang, "a deadlock was missed: {:?}", self.plain_all());
                assert!(self.outstanding.insert(enqueued.ticket));
            }
            Err(NotQueued::Deadlock(circle)) => {
                assert!(would_hang, "a false alarm: {circle}, {:?}", self.plain_all());
                assert!(circle.to_string().contains("waits for"));
                assert_eq!(self.waiting.waiters(), queued_before, "nothing is queued");
                self.deadlocks += 1;
            }
            Err(NotQueued::Refused(refusal)) => panic!("{refusal}"),
        }
    }

    fn release(&mut self, lock: usize, owner: usize, share: Share<'_>) {
        let request = Release {
            owner: OWNERS[owner],
            fence: None,
            share,
        };
        // An owner that holds nothing is refused; the queue is served all the same.
        let _ = self.step(lock, |lock, queue, moment, fences, effects| {
            release(lock, queue, &request, moment, fences, effects)
        });
    }

    /// A client closes its connection; the shell tends to the queue a moment later.
    fn leave(&mut self, lock: usize, dice: &mut Dice) {
        let tickets: Vec<Ticket> = self.waiting.queue(&name(lock)).map_or(Vec::new(), |queue| {
            queue.iter().map(|(ticket, _)| ticket).collect()
        });
        if !tickets.is_empty() {
            let ticket = tickets[dice.roll(tickets.len())];
            self.waiting.leave(&name(lock), ticket);
            self.outstanding.remove(&ticket);
            self.tend_to_all_due();
        }
    }

    /// An administrator takes the lock away.
    fn break_lock(&mut self, lock: usize) {
        self.locks[lock] = Lock::default();
        self.waiting.alarm_at(&name(lock), Instant::DISTANT_PAST);
        self.tend_to_all_due();
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.tend_to_all_due();
    }

    fn tend_to_all_due(&mut self) {
        while let Some(due) = self.waiting.due(self.now) {
            let lock = usize::from(due.key[0]);
            self.step(lock, |lock, queue, moment, fences, effects| {
                tend(lock, queue, moment, fences, effects)
            });
        }
    }

    fn check_answers(&mut self, lock: usize, before: &PlainLock) {
        let after = self.plain(lock);
        for wake in &self.effects.wakes {
            assert!(self.outstanding.remove(&wake.ticket), "answered twice: {wake:?}");
        }
        let granted: Vec<Ticket> = self
            .effects
            .wakes
            .iter()
            .filter(|wake| matches!(wake.answer, Answer::Granted(_)))
            .map(|wake| wake.ticket)
            .collect();
        // The first request of each owner that was let in: nobody before it waits on.
        let mut let_in = BTreeSet::new();
        for (ticket, owner, _) in before
            .queue
            .iter()
            .filter(|(ticket, ..)| granted.contains(ticket))
        {
            if let_in.insert(owner.clone()) {
                let overtaken = after.queue.iter().find(|(other, ..)| other < ticket);
                assert_eq!(overtaken, None, "{before:?} {after:?}");
            }
        }
        assert!(self.locks[lock].is_sound());
        let held = |owner: &Vec<u8>| after.holders.iter().any(|(holder, _)| holder == owner);
        assert!(
            !after.queue.iter().any(|(_, owner, _)| held(owner)),
            "a holder waits: {after:?}"
        );
        if let Some((_, _, limit)) = after.queue.first() {
            let live = Moment::at(self.now);
            let holders: Vec<Limit> = self.locks[lock]
                .holders()
                .iter()
                .filter(|holder| live.is_live(holder))
                .map(|holder| holder.limit())
                .collect();
            assert!(!fits(&holders, *limit), "a wake-up was lost: {after:?}");
        }
    }

    fn plain(&self, lock: usize) -> PlainLock {
        let queue = self.waiting.queue(&name(lock));
        PlainLock {
            holders: self.locks[lock]
                .holders()
                .iter()
                .filter(|holder| Moment::at(self.now).is_live(holder))
                .map(|holder| (holder.owner().to_vec(), holder.limit()))
                .collect(),
            queue: queue
                .into_iter()
                .flat_map(Queue::iter)
                .map(|(ticket, waiter)| (ticket, waiter.owner().to_vec(), waiter.limit()))
                .collect(),
        }
    }

    fn plain_all(&self) -> Vec<PlainLock> {
        (0..self.locks.len()).map(|lock| self.plain(lock)).collect()
    }

    /// Whether this request would wait for ever.
    fn hangs_with(&self, lock: usize, request: &Acquire<'_>) -> bool {
        let mut locks = self.plain_all();
        let candidate = Ticket(u64::MAX);
        locks[lock]
            .queue
            .push((candidate, request.owner.to_vec(), request.limit));
        stuck(locks).contains(&candidate)
    }
}

/// A lock in plain words: holders, and waiters in order.
#[derive(Clone, Debug, Default)]
struct PlainLock {
    holders: Vec<(Vec<u8>, Limit)>,
    queue: Vec<(Ticket, Vec<u8>, Limit)>,
}

fn fits(holders: &[Limit], limit: Limit) -> bool {
    holders
        .iter()
        .copied()
        .fold(limit, Limit::min)
        .allows(holders.len() + 1)
}

/// Who still waits when every owner that waits for nothing has given up all, again and again.
fn stuck(mut locks: Vec<PlainLock>) -> BTreeSet<Ticket> {
    loop {
        let waits = |locks: &[PlainLock], owner: &Vec<u8>| {
            locks
                .iter()
                .any(|lock| lock.queue.iter().any(|(_, waiter, _)| waiter == owner))
        };
        let snapshot = locks.clone();
        for lock in &mut locks {
            lock.holders.retain(|(holder, _)| waits(&snapshot, holder));
        }
        for lock in &mut locks {
            while let Some((_, owner, limit)) = lock.queue.first().cloned() {
                let limits: Vec<Limit> = lock.holders.iter().map(|(_, limit)| *limit).collect();
                let held = lock.holders.iter().any(|(holder, _)| *holder == owner);
                if !held && !fits(&limits, limit) {
                    break;
                }
                if !held {
                    lock.holders.push((owner.clone(), limit));
                }
                lock.queue.retain(|(_, waiter, _)| *waiter != owner);
            }
        }
        let shape = |locks: &[PlainLock]| -> Vec<(usize, usize)> {
            locks
                .iter()
                .map(|lock| (lock.holders.len(), lock.queue.len()))
                .collect()
        };
        if shape(&snapshot) == shape(&locks) {
            return locks
                .into_iter()
                .flat_map(|lock| lock.queue)
                .map(|(ticket, ..)| ticket)
                .collect();
        }
    }
}

fn name(lock: usize) -> LockName {
    LockName {
        db: 0,
        key: [lock as u8].into(),
    }
}

#[test]
fn deadlocks_are_found_exactly_and_nobody_overtakes_or_is_lost_in_ten_thousand_schedules() {
    let mut deadlocks = 0;
    for seed in 0..SCHEDULES {
        let mut dice = Dice(seed);
        let locks = 2 + dice.roll(3);
        let mut world = World::new(locks);
        for _ in 0..STEPS {
            let (lock, owner) = (dice.roll(locks), dice.roll(OWNERS.len()));
            match dice.roll(16) {
                0..=8 => {
                    let limit = if dice.roll(4) == 0 {
                        Limit::new(2).expect("a limit")
                    } else {
                        LIMITS[dice.roll(3)]
                    };
                    let timeout = if dice.roll(4) == 0 {
                        Timeout::Ms(1 + dice.roll(9) as u64)
                    } else {
                        Timeout::Never
                    };
                    world.acquire(lock, owner, limit, 1 + dice.roll(40) as u64, timeout);
                    continue;
                }
                9..=11 => world.release(lock, owner, Share::One),
                12 => world.release(lock, owner, Share::All),
                13 => world.leave(lock, &mut dice),
                14 => world.break_lock(lock),
                _ => world.pass(1 + dice.roll(20) as u64),
            }
            // Only a request that blocks can make a deadlock.
            assert_eq!(
                stuck(world.plain_all()),
                BTreeSet::new(),
                "seed {seed} {:?}",
                world.plain_all()
            );
        }
        // In the end all leases have ended: nobody is left without an answer, nothing is left behind.
        for _ in 0..STEPS * 2 {
            world.pass(50);
        }
        assert_eq!(world.outstanding, BTreeSet::new(), "seed {seed}");
        assert!(world.waiting.is_empty() && world.waiting.next_alarm().is_none());
        deadlocks += world.deadlocks;
    }
    assert!(deadlocks > 1_000, "the schedules are too tame: {deadlocks}");
}

#[test]
fn the_lease_of_a_waiter_begins_at_the_grant_and_its_own_wait_is_told() {
    let mut world = World::new(1);
    world.acquire(0, 0, Limit::MUTEX, 100, Timeout::Never);
    world.pass(1);
    world.acquire(0, 1, Limit::MUTEX, 30, Timeout::Never);
    world.pass(60);
    world.release(0, 0, Share::One);
    let [wake] = world.effects.wakes.as_slice() else {
        panic!("{:?}", world.effects)
    };
    let Answer::Granted(granted) = &wake.answer else {
        panic!("{wake:?}")
    };
    assert_eq!((granted.lease_ms, granted.waited_ms, granted.holds), (30, 60, 1));
}
