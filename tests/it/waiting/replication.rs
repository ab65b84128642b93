//! Hand-overs in the AOF and on replicas.

use dlock_testkit::{Server, start_with, wait_for};

use crate::fixtures::{AOF, rewrite_aof, start_with_replica};

#[test]
fn grant_answered_before_crash_survives() {
    const ROUNDS: usize = 6;
    let mut server = Server::with(AOF);
    let mut fence = server.client().acquire("door owner0 600000").fence;
    for n in 1..=ROUNDS {
        let mut next = server.waiter(&format!("door owner{n} 600000 BLOCK 0 REQID r{n}"));
        // The reply to the release is not read: that to the waiter may come first.
        let mut releaser = server.client();
        releaser.send(&format!("DLOCK.RELEASE door owner{}", n - 1));
        let grant = next.granted();
        server.crash_and_restart();
        let mut client = server.client();
        assert!(grant.fence > fence);
        fence = grant.fence;
        let lock = client.lock("door");
        assert_eq!(lock.standing(), [(format!("owner{n}"), fence, 1)]);
        assert_eq!(lock.waiting, 0, "a restart drops waiters");
        let known = client.acquire(&format!("door owner{n} 600000 REQID r{n}"));
        assert_eq!((known.fence, known.holds), (fence, 1), "its request id is known");
    }
}

#[test]
fn aof_rewrite_keeps_holders_and_drops_waiters() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("door alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    rewrite_aof(&mut client);
    client.release("door alice");
    let fence = bob.granted().fence;
    rewrite_aof(&mut client);
    server.crash_and_restart();
    let lock = server.client().lock("door");
    assert_eq!(lock.standing(), [("bob".into(), fence, 1)]);
    assert_eq!(lock.waiting, 0);
}

#[test]
fn replica_agrees_on_each_handover() {
    let (server, _replica, mut client, mut on_replica) = start_with_replica();
    client.acquire("door owner0 60000");
    for n in 1..=5 {
        let mut next = server.waiter(&format!("door owner{n} 60000 BLOCK 0"));
        client.release(&format!("door owner{}", n - 1));
        let fence = next.granted().fence;
        client.sync();
        let lock = on_replica.lock("door");
        assert_eq!(lock.standing(), [(format!("owner{n}"), fence, 1)]);
        assert_eq!(lock.waiting, 0, "waiters are not replicated");
        assert_eq!(lock.limit, 1);
    }
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.ask::<i64>("DEL door");
    let fence = bob.granted().fence;
    wait_for("the replica to follow", || {
        on_replica
            .find_lock("door")
            .is_some_and(|lock| lock.standing() == [("bob".into(), fence, 1)])
    });
    assert_eq!(client.digest("door"), on_replica.digest("door"));
}
