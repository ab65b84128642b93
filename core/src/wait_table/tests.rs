//! What the wait table copies of locks, and what a search for deadlocks visits.

use super::*;
use crate::testing::{Answer, Server};

#[test]
fn wait_table_updates_limit_of_returning_holder() {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 60000");
    server.granted("ACQUIRE b alice 60000 SHARED");
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    server.replace(0, server.lock("b").clone());
    server.process_due();
    let entry = server.state.wait_table.entry(LockNameRef::new(0, b"a")).unwrap();
    assert_eq!(entry.holders[0].limit, Limit::SHARED);
}

/// The number of holders that the wait table has copied of the first lock, which is waited for.
fn copied(server: &Server) -> usize {
    let name = server.locks[0].0.as_ref();
    let entry = server.state.wait_table.entry(name);
    entry.expect("a queue").holders.len()
}

fn involves(server: &Server, owner: &str) -> bool {
    server.state.wait_table.involves(owner.as_bytes())
}

#[test]
fn wait_table_copies_no_holders_of_lock_with_more_than_64() {
    let mut server = Server::with(&["a"]);
    for n in 0..65 {
        server.granted(&format!("ACQUIRE a holder{n} 60000 SHARED"));
    }
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    assert_eq!(copied(&server), 0);
    assert!(involves(&server, "bob") && !involves(&server, "holder1"));
    assert_eq!(server.call("RELEASE a holder0"), Ok(Answer::Holds(0)));
    assert_eq!(copied(&server), 64);
    assert!(!involves(&server, "holder0") && involves(&server, "holder1"));
}

/// The number of owners, locks and requests that a search for this owner visits.
fn visited(server: &Server, owner: &str) -> (usize, usize, usize) {
    let wait_table = &server.state.wait_table;
    let graph = wait_table.wait_for_graph(owner.as_bytes(), server.clock());
    let graph = graph.ok().expect("a small graph");
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
    server.granted("ACQUIRE a alice 60000");
    server.granted("ACQUIRE b bob 60000");
    for other in &others {
        // Each holds one lock and waits for the lock of the next, in one long chain.
        server.granted(&format!("ACQUIRE {other} {other} 60000"));
    }
    for pair in others.windows(2) {
        server.waits(&format!("ACQUIRE {} {} 60000 BLOCK 0", pair[1], pair[0]));
    }
    server.waits("ACQUIRE b alice 60000 BLOCK 0");
    // Waiters queued after alice do not block her.
    for late in 0..50 {
        server.waits(&format!("ACQUIRE b late{late} 60000 BLOCK 0"));
    }
    // Nor does bob, who waits for nothing.
    assert_eq!(visited(&server, "alice"), (1, 1, 1));
    let reply = server.call("ACQUIRE a bob 60000 BLOCK 0");
    assert!(matches!(reply, Err(Error::Deadlock(_))), "{reply:?}");
}

#[test]
fn deadlock_search_visits_each_node_once() {
    const ROWS: usize = 12;
    let keys: Vec<String> = (0..ROWS).map(|row| format!("lock{row}")).collect();
    let mut server = Server::with(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
    // Three owners per row, each of which waits for all three of the next row: 3^12 paths.
    let owner = |row: usize, n: usize| format!("owner{row}-{n}");
    for (row, key) in keys.iter().enumerate() {
        for n in 0..3 {
            server.granted(&format!("ACQUIRE {key} {} 60000 SHARED", owner(row, n)));
        }
    }
    for (row, key) in keys.iter().enumerate().skip(1) {
        for n in 0..3 {
            server.waits(&format!("ACQUIRE {key} {} 60000 BLOCK 0", owner(row - 1, n)));
        }
    }
    assert_eq!(
        visited(&server, &owner(0, 2)),
        (3 * (ROWS - 1), ROWS - 1, 3 * (ROWS - 1))
    );
    let last = owner(ROWS - 1, 1);
    let Err(Error::Deadlock(cycle)) = server.call(&format!("ACQUIRE {} {last} 60000 BLOCK 0", keys[0]))
    else {
        panic!("no deadlock")
    };
    assert!(cycle.to_string().contains("and 4 more"), "{cycle}");
}
