//! Transitions of many holders: the work grows linearly with their number.

use std::time::{self, Duration};

use crate::effects::Effects;
use crate::lock::{Holder, Lock, Writer, encode_lock};
use crate::memory::Clocks;
use crate::names::{Limit, LockNameRef};
use crate::testing::{IN_2025_UNIX_MS, block};
use crate::time::{Inputs, Instant, LeaseClock};
use crate::transition::{Policy, ServerState};
use crate::wire::{Acquire, Acquired, Holds, Release, Timeout};

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

static CLOCKS: Clocks = Clocks {
    now: BEGIN,
    unix_ms: IN_2025_UNIX_MS,
    random: 0,
};

fn inputs_at(now: Instant) -> Inputs<'static> {
    Inputs {
        now,
        ..CLOCKS.inputs()
    }
}

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

/// A server on which this many readers wait for a lock that the writer holds.
fn waited_for(number: u64, timeout: Timeout) -> (ServerState, Lock) {
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
            wait: block(timeout),
            ..reader(owner.as_bytes())
        };
        let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
        let queued = transition.acquire(&request, b"");
        assert!(matches!(queued, Ok(Acquired::Queued(_))));
    }
    (server, lock)
}

/// A request that does not wait.
fn reader(owner: &[u8]) -> Acquire<'_> {
    Acquire {
        owner,
        lease_ms: LEASE_MS,
        limit: Limit::SHARED,
        wait: None,
        request_id: None,
        min_fence: None,
    }
}

const RELEASE: Release<'_> = Release {
    owner: b"writer",
    fence: None,
    holds: Holds::All,
};

/// The time in which the writer releases the lock to this many readers.
fn grant_to_readers(number: u64) -> Duration {
    let (mut server, mut lock) = waited_for(number, Timeout::Infinite);
    let (inputs, mut effects) = (inputs_at(BEGIN), Effects::default());
    let took = timed(|| {
        let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
        assert_eq!(transition.release(&RELEASE), Ok(0));
        while server.wait_table.next_due(BEGIN).is_some() {
            server.begin(&inputs, NAME, &mut lock, &mut effects).on_timer();
        }
    });
    assert_eq!(lock.holders().len() as u64, number);
    took
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
    assert_scales_linearly(grant_to_readers);
}

#[test]
fn apply_of_many_new_holders_scales_linearly() {
    assert_scales_linearly(|number| {
        let lock = held_by(readers(number), Limit::SHARED);
        let (mut before, mut effects) = (Lock::default(), Effects::default());
        ServerState::default()
            .apply(
                BEGIN,
                &mut before,
                &encode_lock(&held_by_writer(), LeaseClock::at(BEGIN)),
                &mut effects,
            )
            .unwrap();
        let mut change = Writer::default();
        change.released(b"writer");
        lock.holders()
            .iter()
            .for_each(|holder| change.holder(holder, LeaseClock::at(BEGIN)));
        apply(before, change.as_bytes(), &lock)
    });
}

/// The time of requests of a holder of a lock with this many holders, and as many waiters if `is_waited_for`.
fn requests_beside(number: u64, is_waited_for: bool) -> Duration {
    let mut lock = held_by(readers(number), Limit::SHARED);
    let (mut server, _) = waited_for(if is_waited_for { number } else { 1 }, Timeout::Infinite);
    // The waiters of `waited_for` are other owners than these holders.
    for holder in lock.holders_mut() {
        let owner = [holder.owner(), b"x"].concat();
        *holder = Holder::new(
            &owner,
            Limit::MUTEX,
            holder.fence(),
            BEGIN,
            BEGIN.after_ms(LEASE_MS),
        );
        holder.add_anonymous(1).unwrap();
    }
    let (inputs, mut effects) = (inputs_at(BEGIN), Effects::default());
    timed(|| {
        for _ in 0..50 {
            let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
            assert!(matches!(
                transition.acquire(&reader(b"stranger"), b""),
                Ok(Acquired::NotGranted)
            ));
        }
    })
}

#[test]
fn request_on_lock_with_many_holders_is_not_slowed_by_many_waiters() {
    let mut attempts = (0..ATTEMPTS).map(|_| (requests_beside(MANY, false), requests_beside(MANY, true)));
    assert!(attempts.any(|(without, with)| with < without * 2));
}

/// Runs the timer until nothing is due. Returns how many waiters each run answered.
fn answered(server: &mut ServerState, lock: &mut Lock, now: Instant) -> Vec<usize> {
    let (inputs, mut effects, mut answered) = (inputs_at(now), Effects::default(), Vec::new());
    while server.wait_table.next_due(now).is_some() {
        server.begin(&inputs, NAME, lock, &mut effects).on_timer();
        answered.push(effects.wakes.len());
    }
    answered
}

#[test]
fn release_grants_128_waiters_and_leaves_the_rest_to_the_timer() {
    let (mut server, mut lock) = waited_for(300, Timeout::Infinite);
    let (inputs, mut effects) = (inputs_at(BEGIN), Effects::default());
    let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
    assert_eq!(transition.release(&RELEASE), Ok(0));
    assert_eq!(effects.wakes.len(), 128);
    // Many requests in a row do not add up, and overtake nobody.
    let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
    let stranger = transition.acquire(&reader(b"stranger"), b"");
    assert!(matches!(stranger, Ok(Acquired::NotGranted)));
    assert_eq!(effects.wakes.len(), 0);
    assert_eq!(answered(&mut server, &mut lock, BEGIN), [128, 44]);
    assert_eq!(lock.holders().len(), 300);
    let fences = lock.holders().iter().map(Holder::fence);
    assert!(fences.is_sorted() && server.wait_table.is_empty());
}

/// The lock is free when they have timed out: none of them is granted it.
#[test]
fn waiters_beyond_128_that_have_timed_out_are_not_granted_the_lock() {
    let (mut server, mut lock) = waited_for(300, Timeout::Ms(LEASE_MS));
    assert_eq!(answered(&mut server, &mut lock, LATER), [128, 128, 44]);
    assert!(lock.is_free() && server.wait_table.is_empty());
}

#[test]
fn waiters_of_one_lock_are_turned_away_128_at_a_time() {
    let (mut server, _) = waited_for(300, Timeout::Infinite);
    let mut answered = Vec::new();
    let mut effects = Effects::default();
    while server.wait_table.queue(NAME).is_some() {
        server.turn_away_waiters(NAME, "MOVED", BEGIN, &mut effects);
        answered.push(effects.wakes.len());
        assert_eq!(
            server.wait_table.next_due(BEGIN).is_some(),
            !server.wait_table.is_empty()
        );
    }
    assert_eq!(answered, [128, 128, 44]);
    assert!(!server.wait_table.involves(b"reader1") && server.wait_table.longest_since().is_none());
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
fn repeated_apply_of_many_holders_scales_linearly() {
    assert_scales_linearly(|number| {
        let lock = held_by(readers(number), Limit::SHARED);
        apply(lock.clone(), &encode_lock(&lock, LeaseClock::at(BEGIN)), &lock)
    });
}
