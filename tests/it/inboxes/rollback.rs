//! Many grants in an inbox that has ended. More of it is in `tests/rules`.

use dlock_testkit::wait_for;

use super::{enqueue_many, held_with_inbox};

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
