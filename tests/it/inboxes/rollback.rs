//! Many grants in an inbox that has ended. More of it is in `tests/rules`.

use super::{enqueue_many, held_with_inbox};

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
