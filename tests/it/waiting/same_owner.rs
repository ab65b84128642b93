//! An owner that waits with several requests gets one hold for each.

use crate::fixtures::{assert_refused, held_by_alice};

#[test]
fn all_requests_of_owner_are_granted_together() {
    let (server, mut client) = held_by_alice();
    let mut first = server.waiter("door bob 5000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    let mut others = [
        server.waiter("door bob 30000 BLOCK 0 REQID r1"),
        server.waiter("door bob 1000 BLOCK 0"),
    ];
    client.release("door alice");
    let grant = first.granted();
    let mut holds = vec![grant.holds];
    for other in &mut others {
        let again = other.granted();
        assert_eq!(again.fence, grant.fence);
        holds.push(again.holds);
    }
    holds.sort_unstable();
    assert_eq!(holds, [1, 2, 3]);
    carol.assert_waiting();
    let lock = client.lock("door");
    assert_eq!(lock.standing(), [("bob".into(), grant.fence, 3)]);
    let lease_ms = lock.holder("bob").lease_ms;
    let is_expected = (5001..=30_000).contains(&lease_ms);
    assert!(is_expected, "the longest lease counts: {lease_ms}");
    assert_eq!(client.release("door bob REQID r1"), 2);
    assert_eq!(client.release("door bob"), 1);
    carol.assert_waiting();
    assert_eq!(client.release("door bob"), 0);
    carol.granted();
}

#[test]
fn stricter_waiting_request_of_new_holder_is_refused() {
    let (server, mut client) = held_by_alice();
    let mut granted = server.waiter("door bob 60000 LIMIT 3 BLOCK 0");
    let mut stricter = server.waiter("door bob 60000 LIMIT 2 BLOCK 0");
    let mut looser = server.waiter("door bob 60000 SHARED BLOCK 0");
    client.release("door alice");
    granted.granted();
    looser.granted();
    assert_refused(&mut stricter, "ERR");
    let lock = client.lock("door");
    assert_eq!((lock.limit, lock.holder("bob").holds, lock.waiting), (3, 2, 0));
}

#[test]
fn waiting_owner_reenters_lock_renamed_onto_key() {
    let (server, mut client) = held_by_alice();
    let carol = server.waiter("door carol 60000 BLOCK 0");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let fence = client.acquire("gate bob 60000").fence;
    client.ok("RENAME gate door");
    let grant = bob.granted();
    assert_eq!((grant.fence, grant.holds), (fence, 2));
    carol.assert_waiting();
    client.assert_sole_holder("door", "bob", fence, 2);
    assert_eq!(client.queue("door"), ["carol"]);
}

#[test]
fn waiting_request_beyond_64_of_one_owner_is_refused() {
    const MOST: usize = 64;
    let (server, mut client) = held_by_alice();
    let mut waiters: Vec<_> = (0..MOST)
        .map(|n| server.waiter(&format!("door bob 60000 BLOCK 0 REQID r{n}")))
        .collect();
    let error = client.error("DLOCK.ACQUIRE door bob 60000 BLOCK 0 REQID more");
    assert!(error.starts_with("ERR 64 requests of this owner"), "{error}");
    client.release("door alice");
    waiters.iter_mut().for_each(|waiter| _ = waiter.granted());
    assert_eq!(client.lock("door").holder("bob").holds, MOST as u64);
}
