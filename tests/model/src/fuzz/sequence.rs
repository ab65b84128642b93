//! Any sequence of requests and events on one server with queues, side by side with the model.

use super::choices::Choices;
use dlock_core::testing::{
    Admin, GivenFence, ORIGIN, OWNERS, Pair, Pass, Request, Server, Step, block, execute, full_sync,
};
use dlock_core::{Acquire, Extend, GrantRef, Holds, Limit, Release, Timeout};

const LOCKS: usize = 3;
const LEASES_MS: [u64; 5] = [1, 2, 5, 30, 900];
const TIMEOUTS: [Option<Timeout>; 4] = [
    None,
    Some(Timeout::Infinite),
    Some(Timeout::Ms(2)),
    Some(Timeout::Ms(9)),
];
const IDS: [Option<&[u8]>; 4] = [None, None, Some(b"r1"), Some(b"r2")];

/// Whatever the requests and events: the server replies and looks like the model, keeps the invariants, and a replica has
/// the same holders. In the end each client has a reply.
pub fn sequence(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut pair = Pair::new(LOCKS);
    let mut replica = Server::new(LOCKS, ORIGIN);
    while !choices.is_empty() {
        let step = step(&mut choices);
        pair.step(step);
        for sent in pair.server.take_sent() {
            execute(&mut replica, &sent, pair.server.now());
        }
        if let Step::Restart { .. } | Step::Promotion { .. } = step {
            full_sync(&mut replica, &pair.server, 0);
        }
    }
    pair.finish();
}

fn step(choices: &mut Choices<'_>) -> Step {
    match choices.byte() % 16 {
        0..=5 => ask(choices, acquire),
        6..=7 => ask(choices, release),
        8 => ask(choices, extend),
        // In half milliseconds, so that time also stops between the ends of leases.
        9..=10 => Step::Pass(Pass::Micros(i64::from(choices.byte()) * 500)),
        11 => Step::Disconnect {
            lock: lock(choices),
            place: usize::from(choices.byte()),
        },
        12 => Step::LoseNextGrant,
        13 => Step::Admin(administrate(choices)),
        14 => Step::FireTimers,
        _ => event(choices),
    }
}

fn ask(choices: &mut Choices<'_>, request: fn(&mut Choices<'_>) -> Request<'static>) -> Step {
    let given = [
        GivenFence::None,
        GivenFence::None,
        GivenFence::Latest,
        GivenFence::Earlier,
        GivenFence::Foreign,
    ];
    Step::Ask {
        lock: lock(choices),
        request: request(choices),
        given: choices.of(&given),
    }
}

fn acquire(choices: &mut Choices<'_>) -> Request<'static> {
    let limits = [Limit::MUTEX, Limit::MUTEX, Limit::SHARED, limit(2), limit(3)];
    Request::Acquire(Acquire {
        owner: choices.of(&OWNERS),
        lease_ms: choices.of(&LEASES_MS),
        limit: choices.of(&limits),
        wait: choices.of(&TIMEOUTS).and_then(block),
        request_id: choices.of(&IDS),
        min_fence: min_fence(choices),
    })
}

fn release(choices: &mut Choices<'_>) -> Request<'static> {
    let holds = [
        Holds::One,
        Holds::One,
        Holds::All,
        Holds::ById(b"r1"),
        Holds::ById(b"r2"),
    ];
    Request::Release(Release {
        owner: choices.of(&OWNERS),
        holds: choices.of(&holds),
        fence: None,
    })
}

fn extend(choices: &mut Choices<'_>) -> Request<'static> {
    Request::Extend(Extend {
        owner: choices.of(&OWNERS),
        lease_ms: choices.of(&LEASES_MS),
        grant: choices.of(&IDS).map_or(GrantRef::Current, GrantRef::RequestId),
        min_fence: min_fence(choices),
    })
}

fn administrate(choices: &mut Choices<'_>) -> Admin {
    let (from, to) = (lock(choices), lock(choices));
    match choices.byte() % 5 {
        0 => Admin::Delete(to),
        1 => Admin::Rename { from, to },
        2 => Admin::Dump(from),
        3 => Admin::Restore(to),
        _ => Admin::OtherType(to),
    }
}

fn event(choices: &mut Choices<'_>) -> Step {
    let (kind, grace_ms) = (choices.byte() % 6, choices.of(&[0, 4]));
    match kind {
        0 => Step::Restart {
            grace_ms,
            origin: i64::from(choices.byte()) * 1_000_001,
        },
        1 => Step::Promotion { grace_ms, lost: 0 },
        2 => Step::Evictable(choices.of(&[false, true])),
        3 => Step::Grace(4),
        4 => Step::GrantsPaused(choices.of(&[false, true])),
        _ => Step::DetectDeadlocks(choices.of(&[false, true])),
    }
}

fn lock(choices: &mut Choices<'_>) -> usize {
    usize::from(choices.byte()) % LOCKS
}

/// None, or one near the latest grant: see [`Step::Ask`].
fn min_fence(choices: &mut Choices<'_>) -> Option<u64> {
    choices.of(&[None, None, None, Some(2), Some(4), Some(6)])
}

fn limit(n: u32) -> Limit {
    Limit::new(n).expect("a limit")
}
