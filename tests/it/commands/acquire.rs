//! DLOCK.ACQUIRE without waiting: limits, fences, holds, request ids.

use dlock_testkit::{Client, Server, start};

use crate::fixtures::held_by_alice;

const MAX_FENCE: u64 = (1 << 53) - 1;

#[test]
fn acquire_of_free_lock_grants_one_hold_with_requested_lease() {
    let (_server, mut client) = start();
    let grant = client.acquire("door alice 10000");
    assert_eq!((grant.holds, grant.lease_ms, grant.waited_ms), (1, 10_000, 0));
    assert!((1..=MAX_FENCE).contains(&grant.fence), "{grant:?}");
    assert_eq!(client.ask::<String>("TYPE door"), "dist-lock");
}

#[test]
fn fence_of_each_later_grant_is_larger() {
    let (_server, mut client) = start();
    let mut last = 0;
    for _ in 0..100 {
        let fence = client.acquire("door alice 10000").fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        client.release("door alice");
    }
}

#[test]
fn acquire_is_granted_within_smallest_limit_of_holders() {
    let (_server, mut client) = start();
    // One lock per row. Each owner sends the next request: whether it is granted, and its options.
    let rows = [
        ("a mutex admits one", "yes; no; no LIMIT 1; no LIMIT 9; no SHARED"),
        ("limit 1 is a mutex", "yes LIMIT 1; no LIMIT 1; no; no SHARED"),
        (
            "a plain request needs the lock free",
            "yes SHARED; no; no LIMIT 1; yes SHARED",
        ),
        (
            "shared requests join shared holders",
            "yes SHARED; yes SHARED; yes SHARED; yes SHARED",
        ),
        (
            "a semaphore admits its limit",
            "yes LIMIT 3; yes LIMIT 3; yes LIMIT 3; no LIMIT 3",
        ),
        (
            "the limit of a holder binds all",
            "yes LIMIT 9; yes LIMIT 2; no LIMIT 9; no SHARED",
        ),
        (
            "the limit of a request binds itself",
            "yes LIMIT 9; yes LIMIT 9; no LIMIT 2; yes LIMIT 3",
        ),
        (
            "shared requests fill a semaphore",
            "yes LIMIT 2; yes SHARED; no SHARED; no LIMIT 2",
        ),
        (
            "a semaphore joins shared holders",
            "yes SHARED; yes SHARED; yes LIMIT 3; no SHARED",
        ),
        (
            "the largest limit",
            "yes LIMIT 2147483647; yes LIMIT 2147483647; yes SHARED; no",
        ),
    ];
    for (index, (rule, requests)) in rows.iter().enumerate() {
        for (owner, request) in requests.split("; ").enumerate() {
            let (granted, options) = request.split_once(' ').unwrap_or((request, ""));
            let reply = client.try_acquire(&format!("lock{index} owner{owner} 10000 {options}"));
            let expected = granted == "yes";
            assert_eq!(reply.is_some(), expected, "{rule}: request {owner}: {request}");
        }
    }
}

#[test]
fn limit_is_lifted_when_its_holder_releases() {
    let (_server, mut client) = start();
    client.acquire("door strict 10000 LIMIT 2");
    client.acquire("door loose 10000 LIMIT 3");
    assert_eq!(client.try_acquire("door third 10000 LIMIT 3"), None);
    client.release("door strict");
    client.acquire("door third 10000 LIMIT 3");
    client.acquire("door fourth 10000 LIMIT 3");
    assert_eq!(client.try_acquire("door fifth 10000 LIMIT 3"), None);
}

#[test]
fn reentry_adds_hold_under_same_fence() {
    let (_server, mut client) = start();
    let first = client.acquire("door alice 10000");
    for holds in 2..=5 {
        let again = client.acquire("door alice 10000");
        let expected = (first.fence, holds, 0);
        assert_eq!((again.fence, again.holds, again.waited_ms), expected);
    }
}

#[test]
fn reentry_extends_lease_but_never_shortens_it() {
    let (_server, mut client) = held_by_alice();
    let shorter = client.acquire("door alice 1000");
    assert!((50_000..=60_000).contains(&shorter.lease_ms), "{shorter:?}");
    let longer = client.acquire("door alice 90000");
    assert_eq!(longer.lease_ms, 90_000);
}

#[test]
fn reentry_with_looser_limit_keeps_limit() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 LIMIT 2");
    client.acquire("door alice 10000 LIMIT 5");
    client.acquire("door alice 10000 SHARED");
    assert_eq!(client.lock("door").limit, 2);
    client.acquire("door bob 10000 SHARED");
    assert_eq!(client.try_acquire("door carol 10000 SHARED"), None);
}

#[test]
fn reentry_with_stricter_limit_is_refused_until_release() {
    let (_server, mut client) = start();
    for (key, held, stricter) in [
        ("a", "SHARED", "LIMIT 2147483647"),
        ("b", "SHARED", ""),
        ("c", "LIMIT 3", "LIMIT 2"),
        ("d", "LIMIT 2", ""),
    ] {
        client.acquire(&format!("{key} alice 10000 {held}"));
        client.assert_error("ERR", &format!("DLOCK.ACQUIRE {key} alice 10000 {stricter}"));
        let holds = client.lock(key).holder("alice").holds;
        assert_eq!(holds, 1, "{held} to {stricter:?}");
        client.release(&format!("{key} alice"));
        client.acquire(&format!("{key} alice 10000 {stricter}"));
    }
}

#[test]
fn repeated_reqid_is_idempotent() {
    let (_server, mut client) = start();
    let first = client.acquire("door alice 10000 REQID r1");
    client.acquire("door alice 10000 REQID r2");
    let repeated = client.acquire("door alice 60000 REQID r1");
    let expected = (first.fence, 2, 0);
    assert_eq!((repeated.fence, repeated.holds, repeated.waited_ms), expected);
    let is_expected = repeated.lease_ms <= 10_000;
    assert!(is_expected, "not even the lease changes: {repeated:?}");
    assert_eq!(client.lock("door").holder("alice").holds, 2);
}

#[test]
fn reqid_is_scoped_to_owner_and_lock() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 SHARED REQID same");
    client.acquire("door bob 10000 SHARED REQID same");
    client.acquire("gate alice 10000 REQID same");
    assert_eq!(client.release("door alice REQID same"), 0);
    assert_eq!(client.owner("door").as_deref(), Some("bob"));
    assert_eq!(client.owner("gate").as_deref(), Some("alice"));
}

#[test]
fn released_reqid_adds_new_hold() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    client.release("door alice REQID r1");
    assert_eq!(client.acquire("door alice 10000 REQID r1").holds, 2);
}

#[test]
fn reqid_holds_beyond_64_are_refused() {
    let (_server, mut client) = start();
    for n in 1..=64 {
        assert_eq!(client.acquire(&format!("door alice 10000 REQID r{n}")).holds, n);
    }
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 10000 REQID r65");
    let holds = client.acquire("door alice 10000 REQID r64").holds;
    assert_eq!(holds, 64, "a known id adds no hold");
    let holds = client.acquire("door alice 10000").holds;
    assert_eq!(holds, 65, "a hold without a request id is not counted");
    client.release("door alice REQID r1");
    assert_eq!(client.acquire("door alice 10000 REQID r65").holds, 65);
}

#[test]
fn acquire_options_are_accepted_in_any_order_and_case() {
    let (_server, mut client) = start();
    client.ask::<Vec<u64>>("dlock.acquire one alice 10000 reqid r1 limit 2");
    client.ask::<Vec<u64>>("Dlock.Acquire two alice 10000 Limit 2 ReqId r1");
    client.ask::<Vec<u64>>("DLOCK.ACQUIRE three alice 10000 REQID limit sHaReD");
    assert_eq!(client.lock("one").limit, 2);
    assert_eq!(client.lock("two").limit, 2);
    assert_eq!(client.lock("three").limit, -1);
    assert_eq!(client.acquire("two alice 10000 LIMIT 2 REQID r1").holds, 1);
}

#[test]
fn keys_owners_and_reqids_are_binary_safe() {
    let (_server, mut client) = start();
    let owner: Vec<u8> = (0..=255).chain(0..=255).collect();
    let id: Vec<u8> = (192..=255).collect();
    let key = b"\0\r\n \xff";
    for _ in 0..2 {
        let grant: Vec<u64> = client.ask_args(&[b"DLOCK.ACQUIRE", key, &owner, b"10000", b"REQID", &id]);
        assert_eq!(grant[1], 1);
    }
    assert_eq!(client.ask_args::<Vec<u8>>(&[b"DLOCK.OWNER", key]), owner);
    let reply = client.ask_args::<u64>(&[b"DLOCK.RELEASE", key, &owner, b"REQID", &id]);
    assert_eq!(reply, 0);
}

#[test]
fn owners_are_compared_by_all_bytes() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    for other in [&b"Alice"[..], b"alic", b"alice\0", b"alicf", b"a"] {
        let reply: Option<Vec<u64>> = client.ask_args(&[b"DLOCK.ACQUIRE", b"door", other, b"10000"]);
        assert_eq!(reply, None, "{other:?}");
    }
}

#[test]
fn lock_survives_close_of_acquiring_connection() {
    let server = Server::start();
    let fence = server.client().acquire("door alice 10000").fence;
    // That connection is closed by now.
    let mut other = server.client();
    assert_eq!(other.try_acquire("door bob 10000"), None);
    assert_eq!(other.acquire("door alice 10000").fence, fence);
    assert_eq!(other.release("door alice ALL"), 0);
}

#[test]
fn locks_of_different_databases_are_independent() {
    let (server, mut zero) = start();
    let mut one = server.client();
    one.ok("SELECT 1");
    zero.acquire("door alice 10000");
    one.acquire("door bob 10000");
    assert_eq!(zero.owner("door").as_deref(), Some("alice"));
    assert_eq!(one.release("door bob"), 0);
    assert!(zero.exists("door"));
    assert!(!one.exists("door"));
}

#[test]
fn longest_and_shortest_lease_are_granted() {
    let (_server, mut client) = start();
    assert_eq!(client.acquire("long alice 600000").lease_ms, 600_000);
    assert_eq!(client.acquire("short alice 1").lease_ms, 1);
}

#[test]
fn shared_lock_is_granted_to_300_holders() {
    let (_server, mut client) = start();
    for n in 0..300 {
        client.acquire(&format!("door owner{n} 60000 SHARED"));
    }
    assert_eq!(client.lock("door").holders.len(), 300);
    release_all(&mut client, 300);
    assert!(!client.exists("door"));
}

fn release_all(client: &mut Client, owners: usize) {
    for n in 0..owners {
        assert_eq!(client.release(&format!("door owner{n}")), 0);
    }
}
