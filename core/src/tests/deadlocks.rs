//! Deadlocks by example: which requests are rejected, the cycle in the error, and the cost of the search.

use super::dsl::{AN_HOUR, ask, granted, limited, named, shared, wait, waits};
use super::subject::Server;
use crate::error::Error;
use crate::lock::Lock;
use crate::name::LockName;
use crate::request::Acquire;

/// The text of the error. Nothing is queued.
#[track_caller]
fn rejection(server: &mut Server, key: &str, request: &Acquire<'_>) -> String {
    let before = server.engine.wait_table.waiters();
    match server.acquire(key, request) {
        Err(Error::Deadlock(cycle)) => {
            assert_eq!(server.engine.wait_table.waiters(), before);
            cycle.to_string()
        }
        outcome => panic!("{outcome:?} to {request:?}"),
    }
}

/// The cycle in the error, without the advice.
#[track_caller]
fn deadlock(server: &mut Server, key: &str, request: &Acquire<'_>) -> String {
    let text = rejection(server, key, request);
    let cycle = text.strip_suffix(": release what this owner holds, then try again");
    cycle.expect("advice that helps").to_owned()
}

fn pool(owner: &str) -> Acquire<'_> {
    limited(2, ask(owner, AN_HOUR))
}

fn wait_for_pool(owner: &str) -> Acquire<'_> {
    limited(2, wait(owner, AN_HOUR))
}

#[test]
fn deadlock_cycle_includes_the_request_despite_other_cycles() {
    let mut server = Server::with(&["m", "n", "own"]);
    for (key, owner) in [("m", "bob"), ("m", "alice"), ("n", "carol"), ("n", "alice")] {
        granted(&mut server, key, &pool(owner));
    }
    // Without alice, who can release both, carol and bob would be a cycle.
    waits(&mut server, "m", &wait_for_pool("carol"));
    waits(&mut server, "n", &wait_for_pool("bob"));
    granted(&mut server, "own", &ask("carol", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "own", &wait("alice", AN_HOUR)),
        "alice holds m, waits for own; carol holds own, waits for m"
    );
}

#[test]
fn deadlock_message_distinguishes_queued_ahead_from_holding() {
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
fn deadlock_message_shows_shortest_cycle() {
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

/// The deadlock formed while detection was off. Alice is not part of it, but would wait as long.
#[test]
fn request_blocked_by_existing_deadlock_gets_its_cycle() {
    let mut server = Server::with(&["a", "b", "own"]);
    granted(&mut server, "a", &ask("bob", AN_HOUR));
    granted(&mut server, "b", &ask("carol", AN_HOUR));
    granted(&mut server, "own", &ask("alice", AN_HOUR));
    waits(&mut server, "own", &wait("dave", AN_HOUR));
    server.policy.detect_deadlocks = false;
    waits(&mut server, "b", &wait("bob", AN_HOUR));
    waits(&mut server, "a", &wait("carol", AN_HOUR));
    server.policy.detect_deadlocks = true;
    assert_eq!(
        rejection(&mut server, "a", &wait("alice", AN_HOUR)),
        "bob holds a, waits for b; carol holds b, waits for a: \
         this request would wait for them, try again when a lease or a timeout has let one go"
    );
}

#[test]
fn replaced_reqid_still_counts_for_deadlocks() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &named("r1", wait("bob", AN_HOUR)));
    waits(&mut server, "a", &named("r1", wait("bob", AN_HOUR)));
    deadlock(&mut server, "b", &wait("alice", AN_HOUR));
}

#[test]
fn deadlock_counts_first_request_of_owner_that_waits_twice() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("dave", AN_HOUR));
    granted(&mut server, "b", &ask("alice", AN_HOUR));
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    // It is queued after bob, who waits for alice; but both her requests are granted together.
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "b", &wait("bob", AN_HOUR));
    server
        .release("a", "dave", crate::Holds::One)
        .expect("dave holds it");
    assert_eq!(server.lock("a").holders()[0].holds(), 2);
}

#[test]
fn deadlock_owner_waiting_for_two_locks_releases_nothing_before_both() {
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

/// While the server may not grant (paused clients, too few replicas), no holder is removed. Right after that, a
/// request may arrive before the queue is processed again.
#[test]
fn expired_lease_of_deferred_queue_is_no_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("alice", 10));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    server.pass_ms(10);
    let due = server
        .engine
        .wait_table
        .next_due(server.cx.now)
        .expect("the lease has ended");
    server
        .engine
        .wait_table
        .defer(due.as_ref(), server.cx.now.after_ms(50));
    waits(&mut server, "b", &wait("alice", AN_HOUR));
}

/// The number of owners, locks and requests that a search for this owner visits.
fn visited(server: &Server, owner: &str) -> (usize, usize, usize) {
    let graph = server
        .engine
        .wait_table
        .wait_for_graph(owner.as_bytes(), server.cx.now);
    let requests = graph.locks.iter().map(|site| site.queue.len()).sum();
    (graph.owners.len(), graph.locks.len(), requests)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of owners")]
fn deadlock_search_skips_unrelated_owners() {
    let others: Vec<String> = (0..2_000).map(|n| format!("other{n}")).collect();
    let keys: Vec<&str> = ["a", "b"]
        .into_iter()
        .chain(others.iter().map(|key| &**key))
        .collect();
    let mut server = Server::with(&keys);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    for other in &others {
        // Each holds one lock and waits for the lock of the next, in one long row.
        granted(&mut server, other, &ask(other, AN_HOUR));
    }
    for pair in others.windows(2) {
        waits(&mut server, &pair[1], &wait(&pair[0], AN_HOUR));
    }
    waits(&mut server, "b", &wait("alice", AN_HOUR));
    // Waiters queued after alice do not block her.
    for late in 0..50 {
        waits(&mut server, "b", &wait(&format!("late{late}"), AN_HOUR));
    }
    assert_eq!(visited(&server, "alice"), (2, 1, 1));
    deadlock(&mut server, "a", &wait("bob", AN_HOUR));
}

#[test]
fn deadlock_search_visits_each_node_once() {
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
    let cycle = deadlock(&mut server, &keys[0], &wait(&last, AN_HOUR));
    assert!(cycle.ends_with("and 4 more"), "{cycle}");
}

#[test]
fn deadlock_message_cuts_names_and_stays_below_4_kb() {
    // Each byte takes four characters.
    let names: Vec<String> = (0..10).map(|n| format!("{}{n}", "é".repeat(250))).collect();
    let mut server = Server::with(&names.iter().map(|name| &**name).collect::<Vec<_>>());
    for name in &names {
        granted(&mut server, name, &ask(name, AN_HOUR));
    }
    for pair in names.windows(2) {
        waits(&mut server, &pair[1], &wait(&pair[0], AN_HOUR));
    }
    let shown = format!("{}...", r"\xc3\xa9".repeat(32));
    let cycle = rejection(&mut server, &names[0], &wait(&names[9], AN_HOUR));
    assert!(cycle.len() < 4_000, "{}", cycle.len());
    let first = format!("{shown} holds {shown}, waits for {shown}; ");
    assert!(cycle.starts_with(&first), "{cycle}");
    assert!(cycle.contains("; and 6 more: release"), "{cycle}");
}

#[test]
fn deadlock_message_names_databases_where_they_differ() {
    let mut server = Server::with(&["a"]);
    server.locks.push((LockName::new(3, b"b"), Lock::default()));
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    assert_eq!(
        deadlock(&mut server, "b", &wait("alice", AN_HOUR)),
        "alice holds a (db0), waits for b (db3); bob holds b (db3), waits for a (db0)"
    );
}

#[test]
fn deadlock_message_leaves_out_locks_that_the_caller_may_not_read() {
    let mut server = Server::with(&["a", "secret1", "secret2", "b"]);
    let owners = ["alice", "bob", "carol", "dave"];
    for (key, owner) in ["a", "secret1", "secret2", "b"].into_iter().zip(owners) {
        granted(&mut server, key, &ask(owner, AN_HOUR));
    }
    for (owner, key) in owners.into_iter().zip(["secret1", "secret2", "b"]) {
        waits(&mut server, key, &wait(owner, AN_HOUR));
    }
    let Err(Error::Deadlock(mut cycle)) = server.acquire("a", &wait("dave", AN_HOUR)) else {
        panic!("no deadlock")
    };
    cycle.retain_locks(|lock| !lock.key.starts_with(b"secret"));
    assert_eq!(
        cycle.to_string(),
        "dave holds b, waits for a; alice holds a, waits for another lock; \
         carol holds another lock, waits for b; and 1 more: release what this owner holds, then try again"
    );
    cycle.retain_locks(|_| false);
    assert_eq!(
        cycle.to_string(),
        "owners wait for each other; and 4 more: release what this owner holds, then try again"
    );
}
