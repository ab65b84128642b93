//! Any sequence of requests and events on one server with queues.

use super::choices::Choices;
use super::server::Server;
use dlock_core::{Acquire, Extend, GrantRef, Guard, Holds, Limit, Lock, Release, Timeout, Wait};

const LOCKS: u8 = 3;
const OWNERS: [&[u8]; 4] = [b"a", b"ab", &[0xff; 512], b"\0"];
const LEASES_MS: [u64; 5] = [1, 2, 5, 30, 86_400_000];
const TIMEOUTS: [Option<Timeout>; 4] = [
    None,
    Some(Timeout::Infinite),
    Some(Timeout::Ms(2)),
    Some(Timeout::Ms(9)),
];
const IDS: [Option<&[u8]>; 4] = [None, None, Some(b"r1"), Some(b"r2")];

/// Whatever the requests and events: locks stay sound, waiters are granted in FIFO order, each gets exactly one reply,
/// and a replica has the same holders.
pub fn sequence(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut server = Server::with_locks(LOCKS);
    while !choices.is_empty() {
        match choices.byte() % 16 {
            0..=5 => acquire(&mut server, &mut choices),
            6..=7 => release(&mut server, &mut choices),
            8 => extend(&mut server, &mut choices),
            9..=10 => pass(&mut server, &mut choices),
            11 => server.disconnect(usize::from(choices.byte())),
            12 => rollback_grant(&mut server, &mut choices),
            13 => replace(&mut server, &mut choices),
            14 => guard(&mut server, &mut choices),
            _ => event(&mut server, &mut choices),
        }
    }
    server.process_due();
}

fn acquire(server: &mut Server, choices: &mut Choices<'_>) {
    let place = place(choices);
    let limits = [Limit::MUTEX, Limit::MUTEX, Limit::SHARED, limit(2), limit(3)];
    let request = Acquire {
        owner: choices.of(&OWNERS),
        lease_ms: choices.of(&LEASES_MS),
        limit: choices.of(&limits),
        wait: choices.of(&TIMEOUTS).map(|timeout| Wait { timeout, inbox: None }),
        request_id: choices.of(&IDS),
        min_fence: min_fence(server, choices),
    };
    server.acquire(place, &request);
}

fn release(server: &mut Server, choices: &mut Choices<'_>) {
    let place = place(choices);
    let owner = choices.of(&OWNERS);
    let holds = [
        Holds::One,
        Holds::One,
        Holds::All,
        Holds::ById(b"r1"),
        Holds::ById(b"r2"),
    ];
    let request = Release {
        owner,
        holds: choices.of(&holds),
        fence: fence(server, place, owner, choices),
    };
    server.release(place, &request);
}

fn extend(server: &mut Server, choices: &mut Choices<'_>) {
    let place = place(choices);
    let owner = choices.of(&OWNERS);
    let request = Extend {
        owner,
        lease_ms: choices.of(&LEASES_MS),
        grant: match choices.of(&IDS) {
            Some(id) => GrantRef::RequestId(id),
            None => fence(server, place, owner, choices).into(),
        },
        min_fence: min_fence(server, choices),
    };
    server.extend(place, &request);
}

fn guard(server: &mut Server, choices: &mut Choices<'_>) {
    let place = place(choices);
    let owner = choices.of(&OWNERS);
    if let Some(fence) = fence(server, place, owner, choices) {
        server.guard(place, &Guard { owner, fence });
    }
}

/// Of a hold with or without a request id.
fn rollback_grant(server: &mut Server, choices: &mut Choices<'_>) {
    let place = place(choices);
    let request = Release {
        owner: choices.of(&OWNERS),
        holds: choices.of(&[Holds::One, Holds::ById(b"r1")]),
        fence: None,
    };
    server.rollback_grant(place, &request);
}

/// In half milliseconds, so that time also stops between the ends of leases.
fn pass(server: &mut Server, choices: &mut Choices<'_>) {
    server.pass(i64::from(choices.byte()) * 500);
    if choices.of(&[true, false]) {
        server.process_due();
    }
}

/// DEL, or RENAME and RESTORE of another lock.
fn replace(server: &mut Server, choices: &mut Choices<'_>) {
    let (to, from) = (place(choices), place(choices));
    let lock = if to == from {
        Lock::default()
    } else {
        server.lock(from).clone()
    };
    server.replace(to, lock);
}

fn event(server: &mut Server, choices: &mut Choices<'_>) {
    match choices.byte() % 6 {
        0 => server.take_over(false),
        1 => server.take_over(true),
        2 => server.toggle_evictable(),
        3 => server.begin_grace(),
        4 => server.drain(place(choices)),
        _ => server.on_timer(place(choices)),
    }
}

fn place(choices: &mut Choices<'_>) -> usize {
    usize::from(choices.byte() % LOCKS)
}

/// None, or one near the counter.
fn min_fence(server: &Server, choices: &mut Choices<'_>) -> Option<u64> {
    let known = server.known_fence().max(3);
    choices.of(&[None, None, None, Some(known - 2), Some(known), Some(known + 2)])
}

fn limit(n: u32) -> Limit {
    Limit::new(n).expect("a limit")
}

/// None, that of the owner, or another one.
fn fence(server: &Server, place: usize, owner: &[u8], choices: &mut Choices<'_>) -> Option<u64> {
    let holders = || server.lock(place).holders().iter();
    match choices.byte() % 4 {
        0 | 1 => None,
        2 => holders()
            .find(|holder| holder.owner() == owner)
            .map(|holder| holder.fence()),
        _ => holders().map(|holder| holder.fence()).next(),
    }
}
