//! Any bytes as the value of a lock: from an RDB file, a RESTORE, a MIGRATE.

use super::holders::{assert_sound, who};
use dlock_core::engine::{Cause, decide, events};
use dlock_core::memory::Memory;
use dlock_core::{
    Acquire, Extend, Fences, GrantRef, Guard, Holder, Holds, Instant, LeaseClock, Limit, Lock, LockName,
    Release, Transition, WallClock, decode_lock, encode_lock,
};

const KEY: &[u8] = b"lock";
const LEASE_MS: u64 = u64::MAX >> 12;
/// The time at which the value is decoded.
const CLOCKS_MICROS: [i64; 4] = [0, 1, 123_456_789_012_345, -123_456_789];

/// Bytes are rejected, or decode to a sound lock that encodes to the same bytes. Its transitions behave as those of
/// any other lock, for every owner and at any time.
pub fn payload(bytes: &[u8]) {
    for micros in CLOCKS_MICROS {
        let now = Instant::from_micros(micros);
        let Ok(lock) = decode_lock(bytes, now) else {
            continue;
        };
        assert_sound(&lock);
        assert_eq!(encode_lock(&lock, LeaseClock::at(now)), bytes, "{lock:?}");
        check_grace(&lock, now);
        check_restore(&lock);
        for now in times(&lock, now) {
            check_steps(&lock, now);
        }
    }
}

/// What a client restores leaves the fence counter within a year of the clock.
fn check_restore(lock: &Lock) {
    const UNIX_MS: u64 = 1_750_000_000_000;
    const LIMIT: u64 = (UNIX_MS - 1_704_067_200_000 + 366 * 86_400_000) * 2_048;
    let mut fences = Fences::starting();
    for holder in lock.holders() {
        let is_plausible = fences.is_plausible(holder.fence(), WallClock::from_unix_ms(UNIX_MS));
        assert_eq!(is_plausible, holder.fence() <= LIMIT);
        if is_plausible {
            fences.observe(holder.fence());
        }
    }
    assert!(fences.known() <= LIMIT);
}

/// A lock encoded in a grace period has the leases that the grace period extended.
fn check_grace(lock: &Lock, now: Instant) {
    let grace = LeaseClock {
        grace_end: now.after_ms(7),
        ..LeaseClock::at(now)
    };
    let read = decode_lock(&encode_lock(lock, grace), now).expect("a lock that was encoded");
    assert_eq!(who(&read), who(lock));
    for (read, written) in read.holders().iter().zip(lock.holders()) {
        let expected = written.lease_end(grace);
        assert_eq!(read.lease_end(LeaseClock::at(now)), expected);
    }
}

/// When the lock was decoded, just before and when its first lease ends, and at the end of time.
fn times(lock: &Lock, now: Instant) -> [Instant; 4] {
    let first_end = lock.first_lease_end(LeaseClock::at(now)).unwrap_or(now);
    let last_micro = Instant::from_micros(first_end.as_micros().saturating_sub(1)).max(now);
    [now, last_micro, first_end, Instant::from_micros(i64::MAX)]
}

#[derive(Clone, Copy)]
enum Step {
    AcquireMutex,
    AcquireShared,
    Extend,
    Release,
    Expire,
}

const STEPS: [Step; 5] = [
    Step::AcquireMutex,
    Step::AcquireShared,
    Step::Extend,
    Step::Release,
    Step::Expire,
];

fn check_steps(lock: &Lock, now: Instant) {
    let (holders, clock) = (lock.holders(), LeaseClock::at(now));
    let known = [holders.first(), holders.last()].into_iter().flatten();
    let known = known.map(|holder| (holder.owner(), holder.fence()));
    for (owner, fence) in known.chain([(b"another owner".as_slice(), 1)]) {
        let is_caller =
            |holder: &Holder| (holder.owner(), holder.fence()) == (owner, fence) && holder.is_live(clock);
        let passes = Guard { owner, fence }.check(lock, clock).is_ok();
        assert_eq!(passes, holders.iter().any(is_caller));
        for step in STEPS {
            let mut server = holding(lock, now, false);
            run(step, &mut server, owner, fence);
            let after = server.lock(&LockName::new(0, KEY)).cloned().unwrap_or_default();
            assert_sound(&after);
            check_replica(lock, &after, &server);
        }
    }
}

/// A server with this lock. Its fence counter starts at 0.
fn holding(lock: &Lock, now: Instant, is_replica: bool) -> Memory {
    let mut server = Memory::default();
    server.clocks.now = now;
    server.flags.is_replica = is_replica;
    server.put_lock(LockName::new(0, KEY), lock.clone());
    events::loading_ended(&mut server);
    server
}

/// A rejection is a valid outcome.
fn run(step: Step, server: &mut Memory, owner: &[u8], fence: u64) {
    let cause = Cause::Client;
    let mut decide = |transition: &dyn Fn(&mut Transition<'_>)| {
        let flags = server.flags;
        let decided = decide(server, KEY, flags, cause, |it| {
            transition(it);
            Ok(())
        });
        decided.expect("a lock");
    };
    let mut acquire = |limit| {
        let request = Acquire {
            owner,
            lease_ms: LEASE_MS,
            limit,
            wait: None,
            request_id: None,
            min_fence: None,
        };
        decide(&|it| drop(it.acquire(&request, b"")));
    };
    match step {
        Step::AcquireMutex => acquire(Limit::MUTEX),
        Step::AcquireShared => acquire(Limit::SHARED),
        Step::Extend => {
            let request = Extend {
                owner,
                lease_ms: LEASE_MS,
                grant: GrantRef::Fence(fence),
                min_fence: None,
            };
            decide(&|it| drop(it.extend(&request)));
        }
        Step::Release => decide(&|it| drop(it.release(&one_hold(owner)))),
        Step::Expire => decide(&|it| it.expire_holders()),
    }
}

/// A replica has the same holders, with leases that end no earlier.
fn check_replica(before: &Lock, after: &Lock, server: &Memory) {
    let now = server.clocks.now;
    let mut replica = holding(before, now, true);
    for sent in &server.stream {
        replica.receive(sent).expect("a command of the primary");
    }
    let replica = replica.lock(&LockName::new(0, KEY)).cloned().unwrap_or_default();
    assert_eq!(who(&replica), who(after));
    let clock = LeaseClock::at(now);
    for (theirs, ours) in replica.holders().iter().zip(after.holders()) {
        assert!(theirs.lease_end(clock) >= ours.lease_end(clock));
    }
}

fn one_hold(owner: &[u8]) -> Release<'_> {
    Release {
        owner,
        fence: None,
        holds: Holds::One,
    }
}
