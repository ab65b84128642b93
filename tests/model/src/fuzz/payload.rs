//! Any bytes as the value of a lock: from an RDB file, a RESTORE, a MIGRATE.

use super::holders::{assert_sound, who};
use dlock_core::{
    Acquire, Effects, Extend, Fences, Holds, Instant, Limit, Lock, Queue, Release, Replication,
    TransitionContext, acquire, apply, apply_release, decode_lock, encode_lock, expire_holders, extend,
    release,
};

/// Where the clock of the reader may stand.
const CLOCKS_MICROS: [i64; 4] = [0, 1, 123_456_789_012_345, -123_456_789];

/// Bytes are refused, or make a lock that requests could have made, and are what that lock is written as.
/// Such a lock then behaves as any other, whoever asks, at whatever moment.
pub fn payload(bytes: &[u8]) {
    for micros in CLOCKS_MICROS {
        let now = Instant::from_micros(micros);
        let Ok(lock) = decode_lock(bytes, now) else {
            continue;
        };
        assert_sound(&lock);
        assert_eq!(encode_lock(&lock, &TransitionContext::at(now)), bytes, "{lock:?}");
        check_grace(&lock, now);
        for moment in moments(&lock, now) {
            check_steps(&lock, &moment);
        }
    }
}

/// A lock that is written during a grace takes along what that gives to its holders.
fn check_grace(lock: &Lock, now: Instant) {
    let grace = TransitionContext {
        grace_end: now.after_ms(7),
        ..TransitionContext::at(now)
    };
    let read = decode_lock(&encode_lock(lock, &grace), now).expect("what was written can be read");
    assert_eq!(who(&read), who(lock));
    for (read, written) in read.holders().iter().zip(lock.holders()) {
        assert_eq!(
            TransitionContext::at(now).lease_end(read),
            grace.lease_end(written)
        );
    }
}

/// When the lock was read, just before and when its first lease ends, and at the end of time.
fn moments(lock: &Lock, now: Instant) -> [TransitionContext; 4] {
    let first_end = TransitionContext::at(now).first_lease_end(lock).unwrap_or(now);
    let last_micro = Instant::from_micros(first_end.as_micros().saturating_sub(1)).max(now);
    [now, last_micro, first_end, Instant::from_micros(i64::MAX)].map(TransitionContext::at)
}

type Step = fn(&mut Lock, &[u8], u64, &TransitionContext, &mut Effects);

const STEPS: [Step; 5] = [ask_one_more, ask_shared, prolong, give_back, sweep];

fn check_steps(lock: &Lock, moment: &TransitionContext) {
    let holders = lock.holders();
    let known = [holders.first(), holders.last()].into_iter().flatten();
    let known = known.map(|holder| (holder.owner(), holder.fence()));
    for (owner, fence) in known.chain([(b"a stranger".as_slice(), 1)]) {
        for step in STEPS {
            let (mut after, mut effects) = (lock.clone(), Effects::default());
            step(&mut after, owner, fence, moment, &mut effects);
            assert_sound(&after);
            check_replica(lock, &after, owner, moment, &effects);
        }
    }
}

/// A replica that was told has the same holders, with leases that end no earlier.
fn check_replica(before: &Lock, after: &Lock, owner: &[u8], moment: &TransitionContext, effects: &Effects) {
    let (mut replica, mut news) = (before.clone(), Effects::default());
    match effects.replication {
        Replication::Nothing => {}
        Replication::Verbatim => {
            apply_release(&mut replica, &one_hold(owner), &mut news).expect("it happened there");
        }
        Replication::Change => {
            apply(
                &mut replica,
                effects.change(),
                moment.now,
                &mut Fences::starting(),
                &mut news,
            )
            .expect("a change that a step wrote");
        }
    }
    assert_eq!(who(&replica), who(after));
    for (theirs, ours) in replica.holders().iter().zip(after.holders()) {
        assert!(moment.lease_end(theirs) >= moment.lease_end(ours));
    }
}

fn ask_one_more(lock: &mut Lock, owner: &[u8], _: u64, moment: &TransitionContext, effects: &mut Effects) {
    ask(lock, owner, Limit::MUTEX, moment, effects);
}

fn ask_shared(lock: &mut Lock, owner: &[u8], _: u64, moment: &TransitionContext, effects: &mut Effects) {
    ask(lock, owner, Limit::SHARED, moment, effects);
}

/// Its fences are those of a server that knows the lock. Where they are used up, nobody new is granted.
fn ask(lock: &mut Lock, owner: &[u8], limit: Limit, moment: &TransitionContext, effects: &mut Effects) {
    let mut fences = Fences::starting();
    lock.holders()
        .iter()
        .for_each(|holder| fences.observe(holder.fence()));
    let request = Acquire {
        owner,
        lease_ms: u64::MAX >> 12,
        limit,
        block: None,
        request_id: None,
    };
    // A refusal is an answer too.
    let _ = acquire(lock, &mut Queue::new(), &request, moment, &mut fences, effects);
}

fn prolong(lock: &mut Lock, owner: &[u8], fence: u64, moment: &TransitionContext, effects: &mut Effects) {
    let request = Extend {
        owner,
        lease_ms: u64::MAX >> 12,
        fence: Some(fence),
    };
    let _ = extend(
        lock,
        &mut Queue::new(),
        &request,
        moment,
        &mut Fences::starting(),
        effects,
    );
}

fn give_back(lock: &mut Lock, owner: &[u8], _: u64, moment: &TransitionContext, effects: &mut Effects) {
    let fences = &mut Fences::starting();
    let _ = release(lock, &mut Queue::new(), &one_hold(owner), moment, fences, effects);
}

fn sweep(lock: &mut Lock, _: &[u8], _: u64, moment: &TransitionContext, effects: &mut Effects) {
    expire_holders(lock, moment, effects);
}

fn one_hold(owner: &[u8]) -> Release<'_> {
    Release {
        owner,
        fence: None,
        holds: Holds::One,
    }
}
