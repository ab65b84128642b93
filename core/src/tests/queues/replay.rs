//! What is replicated of hand-overs gives the same owners, holds and fences: on replicas that lag, and from a
//! log that is read much later.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::ops::Micros;
use super::super::schedule::config;
use super::super::subject::{Stored, Subject};
use super::pair::Pair;
use super::schedule::{LOCKS, any_schedule};
use super::subject::{Sent, What};
use crate::codec::decode_lock;
use crate::lock::Lock;

/// A server that is told what happened, and decides nothing.
struct Follower {
    locks: Vec<Subject>,
}

impl Follower {
    /// `origin`: what its clock shows at 0.
    fn new(origin: Micros) -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Subject::new(origin)).collect(),
        }
    }

    /// It is told at `now`, or when it was told before, if that is later. Leases that have ended in between are
    /// not swept here.
    fn receive(&mut self, sent: &Sent, now: Micros) {
        for lock in &mut self.locks {
            lock.now = lock.now.max(now);
        }
        let lock = &mut self.locks[sent.lock];
        match &sent.what {
            What::Step(record) => lock.receive(record),
            What::Gone => lock.lock = Lock::default(),
            What::MovedFrom(from) => {
                let moved = std::mem::take(&mut self.locks[*from].lock);
                self.locks[sent.lock].lock = moved;
            }
            What::Grace(ms) => lock.told_of_grace(*ms),
            What::Restored(bytes) => {
                let now = lock.cx().now;
                lock.lock = decode_lock(bytes, now).expect("what the primary could read");
            }
        }
        assert_follows(&self.locks[sent.lock], &sent.after);
        // A server has one counter for all locks.
        let known = self.locks[sent.lock].engine.fences.known();
        self.locks
            .iter_mut()
            .for_each(|lock| lock.engine.fences.observe(known));
    }
}

/// It has whom the primary had, with the same holds and fences, and with leases that end no earlier.
fn assert_follows(follower: &Subject, primary: &[(Stored, Micros)]) {
    let (theirs, their_ends): (Vec<_>, Vec<_>) = follower.stored().into_iter().unzip();
    let (ours, our_ends): (Vec<_>, Vec<_>) = primary.iter().cloned().unzip();
    assert_eq!(theirs, ours, "owners, fences, limits and holds");
    let mut ends = their_ends.iter().zip(&our_ends);
    assert!(
        ends.all(|(theirs, ours)| theirs >= ours),
        "leases end at {their_ends:?} instead of {our_ends:?}"
    );
}

proptest! {
    #![proptest_config(config(800))]

    #[test]
    fn replicas_and_aof_follow_every_hand_over(
        schedule in any_schedule(),
        lags in vec(0_i64..60_000, 60),
        downtime in 0_i64..1_000_000,
    ) {
        let mut pair = Pair::new(LOCKS);
        let (mut replica, mut laggard) = (Follower::new(-77_000_000), Follower::new(5_000_000_123));
        let mut log = Vec::new();
        for (step, lag) in schedule.into_iter().zip(lags) {
            pair.step(step);
            let now = pair.server.now();
            for sent in pair.server.take_sent() {
                replica.receive(&sent, now);
                laggard.receive(&sent, now + lag);
                log.push(sent);
            }
        }
        let mut restarted = Follower::new(-31_000_000);
        for sent in &log {
            restarted.receive(sent, pair.server.now() + downtime);
        }
    }
}
