//! A primary that has fewer replicas than `min-replicas-to-write`.

use dlock_testkit::{start, start_with, wait_for};

#[test]
fn missing_replicas_refuse_writes_and_leases_still_expire() {
    let (_server, mut client) = start();
    client.acquire("door alice 500");
    client.acquire("gate alice 60000");
    client.config_set("min-replicas-to-write", "1");
    for command in [
        "DLOCK.ACQUIRE free bob 60000",
        "DLOCK.ACQUIRE gate alice 60000",
        "DLOCK.EXTEND gate alice 90000",
        "DLOCK.RELEASE gate alice",
    ] {
        client.assert_error("NOREPLICAS", command);
    }
    assert_eq!(client.lock("gate").holder("alice").holds, 1);
    assert_eq!(client.owner("gate").as_deref(), Some("alice"));
    wait_for("the end of the lease", || client.owner("door").is_none());
    client.config_set("min-replicas-to-write", "0");
    client.release("gate alice");
    client.acquire("door bob 60000");
}

#[test]
fn enough_replicas_allow_all_commands() {
    let (server, mut client) = start_with("min-replicas-to-write 1");
    client.assert_error("NOREPLICAS", "DLOCK.ACQUIRE door alice 60000");
    let mut replica = server.replica();
    wait_for("a replica that counts", || {
        client.call("DLOCK.ACQUIRE door alice 60000").is_ok()
    });
    client.extend("door alice 90000");
    client.sync();
    assert_eq!(replica.client().owner("door").as_deref(), Some("alice"));
    replica.kill();
    wait_for("the loss of the replica", || {
        client.call("DLOCK.RELEASE door alice").is_err()
    });
    client.assert_error("NOREPLICAS", "DLOCK.RELEASE door alice");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}
