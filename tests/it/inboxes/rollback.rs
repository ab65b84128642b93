//! Grants in an inbox that has ended: rolled back if no reply carried them, else valid until their lease ends.

use dlock_testkit::{Client, Events, ReplicationStream, pause, start_with, wait_for};

use super::{enqueue_many, held_with_inbox};
use crate::fixtures::APPLY_DOOR;

/// Bob is granted `door` by alice's release, in an inbox of 100 ms that nobody reads. With nothing in between, commands
/// run before and after the grant.
fn grant_nobody_reads(client: &mut Client, before: &[&str], after: &[&str]) {
    let commands = [
        &[
            "DLOCK.GRANTS short 0 TTL 100",
            "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r1",
        ],
        before,
        &["DLOCK.RELEASE door alice"],
        after,
    ];
    client.batch(&commands.concat());
}

#[test]
fn unread_grant_without_other_waiter_frees_lock() {
    let (_server, mut client, _inbox) = held_with_inbox();
    grant_nobody_reads(&mut client, &[], &[]);
    wait_for("the rollback", || !client.exists("door"));
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
    assert!(client.acquire("door carol 60000").fence > 0);
}

#[test]
fn only_unread_hold_of_owner_is_rolled_back() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut second = server.waiter("door bob 60000 BLOCK 0");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r2");
    grant_nobody_reads(&mut client, &[], &[]);
    let fence = second.granted().fence;
    inbox.granted();
    wait_for("the rollback", || client.stat("dlock_grants_rolled_back") == 1);
    client.assert_sole_holder("door", "bob", fence, 2);
}

/// The server cannot know whether the process read its reply.
#[test]
fn grant_carried_by_lost_reply_is_not_rolled_back() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    inbox.block_with(&mut client, "TTL 100");
    client.release("door alice");
    inbox.close();
    client.wait_for_inboxes(0);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
    assert_eq!(client.lock("door").owners(), ["bob"]);
}

#[test]
fn answers_beyond_last_reply_are_rolled_back_and_carried_ones_kept() {
    const READERS: usize = 1_200;
    let (_server, mut client, mut inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", READERS, "SHARED");
    client.release("door alice");
    client.wait_for_queue("door", 0);
    let answers = inbox.call("TTL 0").answers;
    assert_eq!(answers.len(), 1_000);
    wait_for("the rollbacks", || {
        client.stat("dlock_grants_rolled_back") == (READERS - 1_000) as i64
    });
    let mut owners = client.lock("door").owners();
    let mut carried: Vec<String> = answers.into_iter().map(|answer| answer.owner).collect();
    owners.sort();
    carried.sort();
    assert_eq!(owners, carried);
}

#[test]
fn rollback_of_many_grants_lets_other_clients_in() {
    // A busy machine may not let the observer in.
    let is_sliced = (0..4).any(|_| steps_of_rollback() > 1);
    assert!(is_sliced, "all were rolled back in one piece");
}

/// The number of times that another client sees more grants rolled back than before.
fn steps_of_rollback() -> usize {
    const READERS: usize = 3_000;
    let (_server, mut client, inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", READERS, "SHARED");
    client.batch(&[
        &format!("DLOCK.GRANTS inbox {} TTL 1000", inbox.cursor()),
        "DLOCK.RELEASE door alice",
    ]);
    let (mut steps, mut seen) = (0, 0);
    while seen < READERS as i64 {
        let rolled_back = client.stat("dlock_grants_rolled_back");
        steps += usize::from(rolled_back > seen);
        seen = rolled_back;
    }
    steps
}

#[test]
fn released_unread_grant_is_not_rolled_back() {
    let (_server, mut client, _inbox) = held_with_inbox();
    grant_nobody_reads(
        &mut client,
        &[],
        &["DLOCK.RELEASE door bob", "DLOCK.ACQUIRE door bob 60000"],
    );
    let fence = client.lock("door").holder("bob").fence;
    client.wait_for_inboxes(1);
    // Another inbox that ends later shows that a rollback would have happened by now.
    client.batch(&["DLOCK.GRANTS later 0 TTL 100"]);
    client.wait_for_inboxes(1);
    client.assert_sole_holder("door", "bob", fence, 1);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn unread_grant_of_later_owner_of_same_name_is_not_mixed_up() {
    let (_server, mut client, _inbox) = held_with_inbox();
    // Bob's hold r1 is released, and made again by another request of that name: that one was replied.
    grant_nobody_reads(
        &mut client,
        &[],
        &[
            "DLOCK.RELEASE door bob REQID r1",
            "DLOCK.ACQUIRE door bob 60000 REQID r1",
        ],
    );
    let fence = client.lock("door").holder("bob").fence;
    client.wait_for_inboxes(1);
    client.batch(&["DLOCK.GRANTS later 0 TTL 100"]);
    client.wait_for_inboxes(1);
    client.assert_sole_holder("door", "bob", fence, 1);
}

#[test]
fn expired_unread_grant_is_not_rolled_back() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 100 QUEUE inbox 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    client.release("door alice");
    let fence = carol.granted().fence;
    inbox.call("TTL 0");
    client.wait_for_inboxes(0);
    client.assert_sole_holder("door", "carol", fence, 1);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn broken_unread_grant_is_not_rolled_back() {
    let (_server, mut client, _inbox) = held_with_inbox();
    grant_nobody_reads(&mut client, &[], &["DEL door", "DLOCK.ACQUIRE door carol 60000"]);
    client.wait_for_inboxes(1);
    client.batch(&["DLOCK.GRANTS later 0 TTL 100"]);
    client.wait_for_inboxes(1);
    assert_eq!(client.lock("door").owners(), ["carol"]);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn rollback_is_replicated_and_announced_as_release() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    client.acquire("door alice 60000");
    let mut events = Events::watch(&server);
    let mut stream = ReplicationStream::attach(&server);
    events.take();
    grant_nobody_reads(&mut client, &[], &[]);
    wait_for("the rollback", || !client.exists("door"));
    assert_eq!(stream.take(), [APPLY_DOOR, APPLY_DOOR]);
    let expected = [
        "dlock.released door",
        "dlock.acquired door",
        "dlock.released door",
    ];
    assert_eq!(events.take(), expected);
}

#[test]
fn rollback_is_deferred_while_replicas_are_missing() {
    let (server, mut client, _inbox) = held_with_inbox();
    grant_nobody_reads(&mut client, &[], &["CONFIG SET min-replicas-to-write 1"]);
    client.wait_for_inboxes(1);
    pause(200);
    assert_eq!(client.lock("door").owners(), ["bob"], "nothing may be written");
    let _replica = server.replica();
    wait_for("the rollback", || !client.exists("door"));
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
}
