//! Long queues in replies. More of it is in `tests/rules`.

use redis::Value;

use super::{enqueue_many, held_with_inbox};

#[test]
fn waiters_before_request_are_counted_up_to_thousand() {
    let (_server, mut client, _inbox) = held_with_inbox();
    let requests: Vec<String> = (0..1_003)
        .map(|n| format!("DLOCK.ACQUIRE door owner{n} 60000 QUEUE inbox 0 REQID r"))
        .collect();
    let before = |n| Value::Array(vec![Value::Int(n)]);
    let replies = client.batch(&requests);
    for (n, reply) in (0..).zip(replies) {
        assert_eq!(reply, before(n.min(1_000)), "request {n}");
    }
    let repeated = client.batch(&[&requests[2], &requests[1_002]]);
    assert_eq!(repeated, [before(2), before(1_000)], "each keeps its place");
}

#[test]
fn dlock_info_shows_head_of_long_queue_and_counts_all() {
    const SHOWN: usize = 128;
    const WAITERS: usize = SHOWN + 22;
    let (_server, mut client, _inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", WAITERS, "");
    assert_eq!(client.lock("door").waiting, WAITERS as i64);
    let first: Vec<String> = (0..SHOWN).map(|n| format!("owner{n}")).collect();
    assert_eq!(client.queue("door"), first);
}
