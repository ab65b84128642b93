//! DLOCK.EXTEND: a lease grows and never shrinks.

use dlock_testkit::Server;

#[test]
fn a_longer_lease_is_taken_and_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 10000");
    assert_eq!(client.extend("door alice 60000"), 60_000);
    assert!(client.lock("door").holder("alice").lease_ms > 50_000);
}

#[test]
fn a_shorter_lease_leaves_what_remains() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 60000");
    let remains = client.extend("door alice 10");
    assert!((50_000..=60_000).contains(&remains), "{remains}");
    assert!(client.lock("door").holder("alice").lease_ms > 50_000);
}

#[test]
fn an_extension_changes_neither_fence_nor_holds() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    let before = client.lock("door").standing();
    client.extend("door alice 60000");
    assert_eq!(client.lock("door").standing(), before);
}

#[test]
fn an_extension_is_for_one_holder_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 10000 SHARED");
    client.acquire("door bob 10000 SHARED");
    client.extend("door bob 60000");
    let lock = client.lock("door");
    assert!(lock.holder("alice").lease_ms <= 10_000);
    assert!(lock.holder("bob").lease_ms > 50_000);
}

#[test]
fn each_refusal_has_its_own_first_word() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.refusal("DLOCK.EXTEND door alice 60000"), "NOTHELD");
    let fence = client.acquire("door alice 10000").fence;
    assert_eq!(client.refusal("DLOCK.EXTEND door bob 60000"), "NOTOWNER");
    assert_eq!(
        client.refusal(&format!("DLOCK.EXTEND door bob 60000 FENCE {fence}")),
        "NOTOWNER"
    );
    assert_eq!(
        client.refusal(&format!("DLOCK.EXTEND door alice 60000 FENCE {}", fence - 1)),
        "STALE"
    );
    assert!(
        client.lock("door").holder("alice").lease_ms <= 10_000,
        "a refused request changes nothing"
    );
    assert_eq!(client.extend(&format!("door alice 60000 fence {fence}")), 60_000);
    client.release("door alice");
    assert_eq!(client.refusal("DLOCK.EXTEND door alice 60000"), "NOTHELD");
}

#[test]
fn the_fence_of_an_earlier_grant_is_stale() {
    let server = Server::start();
    let mut client = server.client();
    let old = client.acquire("door alice 10000").fence;
    client.release("door alice");
    client.acquire("door alice 10000");
    assert_eq!(
        client.refusal(&format!("DLOCK.EXTEND door alice 60000 FENCE {old}")),
        "STALE"
    );
}
