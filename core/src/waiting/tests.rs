//! What the wait table copies of locks, and what a search for deadlocks visits.

use super::*;
use crate::cluster::nodes::LocalSlots;
use crate::cluster::slots::{SlotSet, slot_of};
use crate::engine::{WriteCheck, scheduler, slot_events};
use crate::testing::{Answer, Request, Server};

#[test]
fn wait_table_updates_limit_of_returning_holder() {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 60000");
    server.granted("ACQUIRE b alice 60000 SHARED");
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    server.replace(0, server.lock("b").clone());
    server.process_due();
    let entry = server
        .state()
        .wait_table
        .entry(LockNameRef::new(0, b"a"))
        .unwrap();
    assert_eq!(entry.holders[0].limit, Limit::SHARED);
}

/// The number of holders that the wait table has copied of the first lock, which is waited for.
fn copied(server: &Server) -> usize {
    let name = server.names[0].as_ref();
    let entry = server.state().wait_table.entry(name);
    entry.expect("a queue").holders.len()
}

fn involves(server: &Server, owner: &str) -> bool {
    server.state().wait_table.involves(owner.as_bytes())
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
    let wait_table = &server.state().wait_table;
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

/// A server with this many locks that alice holds and bob waits for.
fn with_queues(number: usize) -> Server {
    let keys: Vec<String> = (0..number).map(|n| format!("lock{n:04}")).collect();
    let mut server = Server::with(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
    for key in &keys {
        server.granted(&format!("ACQUIRE {key} alice 60000"));
        server.waits(&format!("ACQUIRE {key} bob 60000 BLOCK 0"));
    }
    server
}

fn due(server: &Server) -> usize {
    (0..server.names.len())
        .filter(|lock| server.is_due(*lock))
        .count()
}

#[test]
fn queues_of_emptied_database_become_due_64_at_a_time_after_those_that_are_due() {
    let mut server = with_queues(150);
    server.pass(1_000);
    server.state_mut().wait_table.schedule_db(Some(1));
    assert_eq!((server.due(), due(&server)), (None, 0), "another database");
    server.state_mut().wait_table.schedule_db(Some(0));
    server.mark_due(149);
    assert_eq!((server.due(), due(&server)), (Some(149), 1));
    server.on_timer(149);
    assert_eq!((server.due(), due(&server)), (Some(0), 64));
    let mut processed = 0;
    while let Some(lock) = server.due() {
        server.on_timer(lock);
        processed += 1;
    }
    assert_eq!(processed, 150);
    assert!(server.next_wakeup().is_some_and(|wakeup| wakeup > server.now()));
}

#[test]
fn database_that_is_emptied_again_is_swept_again() {
    let mut server = with_queues(100);
    server.state_mut().wait_table.schedule_db(None);
    let first = server.due().expect("a queue");
    server.on_timer(first);
    server.state_mut().wait_table.schedule_db(None);
    server.process_due();
    assert_eq!(due(&server), 0);
    server.state_mut().wait_table.schedule_db(None);
    (0..100).for_each(|lock| server.drain(lock));
    assert_eq!(server.next_wakeup(), None, "nobody waits");
}

/// SWAPDB: the request comes before the queue is due.
#[test]
fn waiter_that_holds_swapped_lock_reenters_with_next_request() {
    let mut server = Server::with(&["a"]);
    server.names.push(LockName::new(1, b"a"));
    server.granted("ACQUIRE a alice 60000");
    let other = Request::parse("ACQUIRE bob 60000 SHARED");
    assert!(matches!(server.ask(9, 1, &other), Some(Ok(Answer::Granted(_)))));
    let waiting = server.waits("ACQUIRE a bob 60000 SHARED BLOCK 0");
    server.host.swap_dbs(0, 1);
    assert_eq!(server.call("EXTEND a alice 60000"), Err(Error::NotOwner));
    assert!(server.has_been_granted(waiting));
    assert_eq!(server.lock("a").holders().len(), 1);
}

/// All locks have expired, but nothing may be written.
fn refused(number: usize) -> Server {
    let mut server = with_queues(number);
    server.waits("ACQUIRE lock0001 carol 60000 BLOCK 60500");
    server.pass(60_000_000);
    server.host.refusal = Some(WriteCheck::Refused);
    server.run_due();
    server
}

/// 50 ms later.
fn try_again(server: &mut Server) {
    server.pass(50_000);
    server.run_due();
}

#[test]
fn queues_are_not_due_again_and_again_while_nothing_can_be_written() {
    let mut server = refused(150);
    for _ in 0..9 {
        assert_eq!(due(&server), 0);
        server.pass(50_000);
        assert_eq!(due(&server), 0, "one tries for all");
        server.run_due();
    }
    assert_eq!(server.replies.len(), 0);
    try_again(&mut server);
    let [(_, reply)] = &server.replies[..] else {
        panic!("{:?}", server.replies)
    };
    assert_eq!(*reply, Ok(Answer::NotGranted), "carol has timed out");
}

#[test]
fn all_queues_are_served_when_something_can_be_written_again() {
    let mut server = refused(150);
    server.host.refusal = None;
    server.run_due();
    assert_eq!(server.replies.len(), 0, "none tries before its time");
    try_again(&mut server);
    assert_eq!(server.replies.len(), 150);
}

/// It says nothing of the others.
#[test]
fn queue_of_a_key_that_is_being_saved_ends_the_wait_of_the_others() {
    let mut server = refused(3);
    server.host.refusal = Some(WriteCheck::Later);
    try_again(&mut server);
    assert_eq!((due(&server), server.replies.len()), (0, 0));
    server.host.refusal = None;
    try_again(&mut server);
    assert_eq!(server.replies.len(), 3);
}

/// Those of all but these keys are here, and settled.
fn slots_without(keys: &[&str]) -> Option<LocalSlots> {
    let gone: SlotSet = keys.iter().map(|key| slot_of(key.as_bytes())).collect();
    let slots: SlotSet = (0..16_384).filter(|slot| !gone.contains(*slot)).collect();
    Some(LocalSlots {
        owned: slots.clone(),
        settled: slots,
        importing: SlotSet::EMPTY,
    })
}

/// Long before the slow walk gets to it, and none of the others with it.
#[test]
fn queue_of_a_slot_that_has_left_is_found_at_once_among_many() {
    let mut server = with_queues(400);
    server.host.flags.is_cluster = true;
    for (slots, expected) in [(slots_without(&[]), 0), (slots_without(&["lock0399"]), 1)] {
        server.host.slots = slots;
        server.pass(1_000_000);
        scheduler::run_jobs(&mut server.host);
        assert_eq!(due(&server), expected);
    }
    assert!(server.is_due(399));
}

#[test]
fn locks_of_trimmed_slots_are_forgotten() {
    let mut server = Server::with(&["gone", "kept"]);
    server.granted("ACQUIRE gone alice 60000");
    server.granted("ACQUIRE kept alice 60000");
    let slots: SlotSet = [slot_of(b"gone")].into_iter().collect();
    slot_events::slots_trimmed(&mut server.host, &slots);
    assert_eq!(server.host.engine().expiry.len(), 1);
}
