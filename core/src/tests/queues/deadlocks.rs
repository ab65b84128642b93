//! Requests that no release could ever let in, by example: who is refused, in which words, and what it takes
//! to find out.

use super::subject::Server;
use super::words::{AN_HOUR, ask, granted, limited, named, shared, wait, waits};
use crate::error::Error;
use crate::request::Acquire;

/// The words of the refusal. Nothing is queued.
#[track_caller]
fn refusal(server: &mut Server, key: &str, request: &Acquire<'_>) -> String {
    let before = server.engine.wait_table.waiters();
    match server.acquire(key, request) {
        Err(Error::Deadlock(circle)) => {
            assert_eq!(server.engine.wait_table.waiters(), before);
            circle.to_string()
        }
        outcome => panic!("{outcome:?} to {request:?}"),
    }
}

/// The circle that the refusal spells out, without the advice.
#[track_caller]
fn deadlock(server: &mut Server, key: &str, request: &Acquire<'_>) -> String {
    let text = refusal(server, key, request);
    let circle = text.strip_suffix(": release what this owner holds, then try again");
    circle.expect("advice that helps").to_owned()
}

fn pool(owner: &str) -> Acquire<'_> {
    limited(2, ask(owner, AN_HOUR))
}

fn wait_for_pool(owner: &str) -> Acquire<'_> {
    limited(2, wait(owner, AN_HOUR))
}

#[test]
fn the_circle_goes_through_the_request_also_where_semaphores_make_another_one() {
    let mut server = Server::with(&["m", "n", "own"]);
    for (key, owner) in [("m", "bob"), ("m", "alice"), ("n", "carol"), ("n", "alice")] {
        granted(&mut server, key, &pool(owner));
    }
    // Carol and bob would be in a circle of their own, but for alice, who can let both in.
    waits(&mut server, "m", &wait_for_pool("carol"));
    waits(&mut server, "n", &wait_for_pool("bob"));
    granted(&mut server, "own", &ask("carol", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "own", &wait("alice", AN_HOUR)),
        "alice holds m, waits for own; carol holds own, waits for m"
    );
}

#[test]
fn who_stands_before_in_a_queue_is_not_said_to_hold_the_lock() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("dave", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "b", &wait("alice", AN_HOUR)),
        "alice stands before bob in the queue of a, waits for b; bob holds b, waits for a"
    );
}

#[test]
fn the_shortest_circle_is_told() {
    let mut server = Server::with(&["a", "b", "c"]);
    for (key, owner) in [("a", "alice"), ("a", "dave"), ("b", "bob"), ("c", "carol")] {
        granted(&mut server, key, &shared(ask(owner, AN_HOUR)));
    }
    waits(&mut server, "c", &wait("bob", AN_HOUR));
    waits(&mut server, "a", &wait("carol", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "b", &wait("alice", AN_HOUR)),
        "alice holds a, waits for b; bob holds b, waits for a"
    );
}

/// The deadlock formed while nobody searched. It is not alice's, but she would wait as long.
#[test]
fn who_would_wait_for_a_deadlock_of_others_is_told_of_theirs() {
    let mut server = Server::with(&["a", "b", "own"]);
    granted(&mut server, "a", &ask("bob", AN_HOUR));
    granted(&mut server, "b", &ask("carol", AN_HOUR));
    granted(&mut server, "own", &ask("alice", AN_HOUR));
    waits(&mut server, "own", &wait("dave", AN_HOUR));
    server.rules.detect_deadlocks = false;
    waits(&mut server, "b", &wait("bob", AN_HOUR));
    waits(&mut server, "a", &wait("carol", AN_HOUR));
    server.rules.detect_deadlocks = true;
    assert_eq!(
        refusal(&mut server, "a", &wait("alice", AN_HOUR)),
        "bob holds a, waits for b; carol holds b, waits for a: \
         this request would wait for them, try again when a lease or a timeout has let one go"
    );
}

#[test]
fn a_request_that_took_the_place_of_another_is_still_in_the_way() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &named("r1", wait("bob", AN_HOUR)));
    waits(&mut server, "a", &named("r1", wait("bob", AN_HOUR)));
    deadlock(&mut server, "b", &wait("alice", AN_HOUR));
}

#[test]
fn of_an_owner_that_waits_twice_the_first_request_counts() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("dave", AN_HOUR));
    granted(&mut server, "b", &ask("alice", AN_HOUR));
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    // It stands behind bob, who waits for alice: but she has both when she has one.
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "b", &wait("bob", AN_HOUR));
    server
        .release("a", "dave", crate::Holds::One)
        .expect("dave holds it");
    assert_eq!(server.lock("a").holders()[0].holds(), 2);
}

#[test]
fn an_owner_that_waits_for_two_locks_gives_up_nothing_before_it_has_both() {
    let mut server = Server::with(&["a", "b", "c"]);
    for (key, owner) in [("a", "dave"), ("b", "bob"), ("c", "alice")] {
        granted(&mut server, key, &ask(owner, AN_HOUR));
    }
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "b", &wait("alice", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "c", &wait("bob", AN_HOUR)),
        "bob holds b, waits for c; alice holds c, waits for b"
    );
}

/// While the server may grant nothing (paused clients, too few replicas), nobody sweeps. Right after that a
/// request may come before the queue has been looked at again.
#[test]
fn a_lease_that_ended_while_nothing_could_be_granted_is_no_part_of_a_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("alice", 10));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    server.pass_ms(10);
    let due = server
        .engine
        .wait_table
        .next_due(server.moment.now)
        .expect("the lease has ended");
    server
        .engine
        .wait_table
        .defer(due.as_ref(), server.moment.now.after_ms(50));
    waits(&mut server, "b", &wait("alice", AN_HOUR));
}

/// How many owners, locks and requests a search for this owner looks at.
fn visited(server: &Server, owner: &str) -> (usize, usize, usize) {
    let world = server
        .engine
        .wait_table
        .wait_for_graph(owner.as_bytes(), server.moment.now);
    let requests = world.locks.iter().map(|site| site.queue.len()).sum();
    (world.owners.len(), world.locks.len(), requests)
}

#[test]
fn who_is_not_in_the_way_is_not_visited() {
    let others: Vec<String> = (0..2_000).map(|n| format!("other{n}")).collect();
    let keys: Vec<&str> = ["a", "b"]
        .into_iter()
        .chain(others.iter().map(|key| &**key))
        .collect();
    let mut server = Server::with(&keys);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    for other in &others {
        // Each holds a lock of its own, and waits for that of the next, in one long row.
        granted(&mut server, other, &ask(other, AN_HOUR));
    }
    for pair in others.windows(2) {
        waits(&mut server, &pair[1], &wait(&pair[0], AN_HOUR));
    }
    waits(&mut server, "b", &wait("alice", AN_HOUR));
    // Those who come after alice are not in her way.
    for late in 0..50 {
        waits(&mut server, "b", &wait(&format!("late{late}"), AN_HOUR));
    }
    assert_eq!(visited(&server, "alice"), (2, 1, 1));
    deadlock(&mut server, "a", &wait("bob", AN_HOUR));
}

#[test]
fn each_is_visited_once_however_many_ways_lead_there() {
    const ROWS: usize = 12;
    let keys: Vec<String> = (0..ROWS).map(|row| format!("lock{row}")).collect();
    let mut server = Server::with(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
    // Three owners a row, each of which waits for all three of the next row: 3^12 ways.
    let owner = |row: usize, n: usize| format!("owner{row}-{n}");
    for (row, key) in keys.iter().enumerate() {
        for n in 0..3 {
            granted(&mut server, key, &shared(ask(&owner(row, n), AN_HOUR)));
        }
    }
    for (row, key) in keys.iter().enumerate().skip(1) {
        for n in 0..3 {
            waits(&mut server, key, &wait(&owner(row - 1, n), AN_HOUR));
        }
    }
    assert_eq!(
        visited(&server, &owner(0, 2)),
        (3 * ROWS, ROWS - 1, 3 * (ROWS - 1))
    );
    let last = owner(ROWS - 1, 1);
    let circle = deadlock(&mut server, &keys[0], &wait(&last, AN_HOUR));
    assert!(circle.ends_with("and 4 more"), "{circle}");
}
