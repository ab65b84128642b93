//! Transitions of many holders: the work grows linearly with their number.

use std::time::{self, Duration};

use crate::codec::encode_lock;
use crate::effects::Effects;
use crate::lease_clock::LeaseClock;
use crate::limit::Limit;
use crate::lock::{Holder, Lock};
use crate::name::LockNameRef;
use crate::outcome::Acquired;
use crate::policy::Policy;
use crate::request::{Acquire, Holds, Release, Timeout};
use crate::server_state::ServerState;
use crate::testing::{block, inputs_at};
use crate::time::Instant;

const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };
/// This many holders at once take about as long as in small lots. If the work were quadratic, they would take
/// [`LOTS`] times as long.
const MANY: u64 = 10_000;
const LOTS: u64 = 20;
const TOO_MUCH: u32 = 6;
/// A busy machine disturbs some attempts, not all.
const ATTEMPTS: u32 = 5;

const LEASE_MS: u64 = 60_000;
const BEGIN: Instant = Instant::from_micros(0);
const LATER: Instant = Instant::from_micros(60_000_000);

/// Fails if the time that `work` returns grows faster than the number of holders that it gets.
#[track_caller]
fn assert_scales_linearly(work: impl Fn(u64) -> Duration) {
    let in_lots = || (0..LOTS).map(|_| work(MANY / LOTS)).sum::<Duration>();
    let mut attempts = (0..ATTEMPTS).map(|_| (in_lots(), work(MANY)));
    assert!(
        attempts.any(|(in_lots, at_once)| at_once < in_lots * TOO_MUCH),
        "{MANY} at once take more than {TOO_MUCH} times as long as in {LOTS} lots"
    );
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = time::Instant::now();
    work();
    start.elapsed()
}

fn held_by(owners: impl Iterator<Item = String>, limit: Limit) -> Lock {
    let mut lock = Lock::default();
    for (fence, owner) in (1..).zip(owners) {
        let lease_end = BEGIN.after_ms(LEASE_MS);
        let mut holder = Holder::new(owner.as_bytes(), limit, fence, BEGIN, lease_end);
        holder.add_anonymous(1).unwrap();
        lock.push(holder);
    }
    lock
}

fn readers(number: u64) -> impl Iterator<Item = String> {
    (0..number).map(|n| format!("reader{n}"))
}

fn held_by_writer() -> Lock {
    held_by(["writer".to_owned()].into_iter(), Limit::MUTEX)
}

/// The writer releases the lock to this many readers. Returns the change, the lock after it, and the time.
fn grant_to_readers(number: u64) -> (Effects, Lock, Duration) {
    let (mut server, mut lock, mut effects) = (ServerState::default(), held_by_writer(), Effects::default());
    server.set_policy(Policy {
        max_waiters_per_lock: usize::MAX,
        max_waiters: usize::MAX,
        detect_deadlocks: true,
        ..Policy::default()
    });
    server.fences.observe(1);
    let inputs = inputs_at(BEGIN);
    for owner in readers(number) {
        let request = Acquire {
            owner: owner.as_bytes(),
            lease_ms: LEASE_MS,
            limit: Limit::SHARED,
            wait: block(Timeout::Infinite),
            request_id: None,
            min_fence: None,
        };
        let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
        let queued = transition.acquire(&request, b"", true);
        assert!(matches!(queued, Ok(Acquired::Queued(_))));
    }
    let request = Release {
        owner: b"writer",
        fence: None,
        holds: Holds::All,
    };
    let took = timed(|| {
        let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
        assert_eq!(transition.release(&request), Ok(0));
    });
    assert_eq!(lock.holders().len() as u64, number);
    (effects, lock, took)
}

/// The time in which a replica applies a change, after which its lock is as `expected`.
fn apply(mut lock: Lock, change: &[u8], expected: &Lock) -> Duration {
    let (mut server, mut effects) = (ServerState::default(), Effects::default());
    let took = timed(|| server.apply(BEGIN, &mut lock, change, &mut effects).unwrap());
    assert_eq!(&lock, expected);
    took
}

#[test]
fn release_that_grants_many_readers_scales_linearly() {
    assert_scales_linearly(|number| grant_to_readers(number).2);
}

#[test]
fn apply_of_many_new_holders_scales_linearly() {
    assert_scales_linearly(|number| {
        let (effects, lock, _) = grant_to_readers(number);
        apply(held_by_writer(), effects.change().unwrap(), &lock)
    });
}

#[test]
fn apply_of_many_expired_holders_scales_linearly() {
    assert_scales_linearly(|number| {
        let before = held_by(readers(number), Limit::SHARED);
        let (mut lock, mut effects) = (before.clone(), Effects::default());
        ServerState::default()
            .begin(&inputs_at(LATER), NAME, &mut lock, &mut effects)
            .expire_holders();
        assert!(lock.is_free());
        apply(before, effects.change().unwrap(), &lock)
    });
}

#[test]
fn apply_of_a_whole_lock_scales_linearly() {
    assert_scales_linearly(|number| {
        let lock = held_by(readers(number), Limit::SHARED);
        apply(Lock::default(), &encode_lock(&lock, LeaseClock::at(BEGIN)), &lock)
    });
}

#[test]
fn repeated_apply_of_many_holders_scales_linearly() {
    assert_scales_linearly(|number| {
        let lock = held_by(readers(number), Limit::SHARED);
        apply(lock.clone(), &encode_lock(&lock, LeaseClock::at(BEGIN)), &lock)
    });
}
