//! DLOCK.GRANTS: bad arguments, the form of its replies, names of any bytes. More of it is in `tests/rules`.

use dlock_testkit::{Delivery, Inbox, reply_bytes, start};
use redis::Value;

use super::{enqueue_many, held_with_inbox, shown};

const MAX_CURSOR: u64 = 1 << 53;

#[test]
fn timeout_bounds_and_options_are_checked_without_side_effects() {
    let (server, mut client, inbox) = held_with_inbox();
    let cursor = inbox.cursor();
    let long = "i".repeat(65);
    let calls = [
        format!("inbox {cursor} BLOCK 0"),
        format!("inbox {cursor} BLOCK 60001"),
        format!("inbox {cursor} BLOCK -1"),
        format!("inbox {cursor} BLOCK x"),
        format!("inbox {cursor} BLOCK"),
        format!("inbox {cursor} BLOCK 01"),
        format!("inbox {cursor} BLOCK 1 BLOCK 1"),
        format!("inbox {cursor} TTL 1"),
        format!("inbox {cursor} TTL 99"),
        format!("inbox {cursor} TTL 60001"),
        format!("inbox {cursor} TTL -1"),
        format!("inbox {cursor} TTL"),
        format!("inbox {cursor} TTL 0 TTL 0"),
        format!("inbox {cursor} COUNT 1"),
        format!("inbox {cursor} 1000"),
        "inbox x".into(),
        "inbox -1".into(),
        "inbox 01".into(),
        "inbox +1".into(),
        format!("inbox {MAX_CURSOR}"),
        "inbox 18446744073709551617".into(),
        "new 0 BLOCK 0".into(),
        "new 0 TTL 99".into(),
        "new 0 nonsense".into(),
        format!("{long} 0"),
    ];
    let before = client.info_section("dlock");
    for call in &calls {
        let error = client.error(&format!("DLOCK.GRANTS {call}"));
        assert!(error.starts_with("ERR "), "{call}: {error}");
    }
    assert_eq!(client.error_code_args(&[b"DLOCK.GRANTS", b"", b"0"]), "ERR");
    let mut after = client.info_section("dlock");
    let errors = after.insert("dlock_errors_err".into(), before["dlock_errors_err"].clone());
    assert_eq!(errors, Some((calls.len() + 1).to_string()));
    assert_eq!(after, before);
    // In range.
    let mut names = Inbox::make_with(&server, &long[..64], "ttl 60000 block 60000");
    names.call("block 1 ttl 100");
    names.call("TTL 60000 BLOCK 1");
}

#[test]
fn replies_have_same_shape_in_resp2_and_resp3() {
    let (server, mut client, mut inbox) = held_with_inbox();
    for resp in [2, 3] {
        let before = reply_bytes(
            &server,
            resp,
            &format!("DLOCK.ACQUIRE door owner{resp} 60000 SHARED QUEUE inbox 0 REQID r1"),
        );
        assert_eq!(before, format!("*1\r\n:{}\r\n", resp - 2));
    }
    client.enqueue("door bob 60000 QUEUE inbox 1 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    inbox.take(1);
    let cursor = inbox.cursor();
    client.release("door carol REQID r1");
    client.release("door alice");
    let mut shapes = Vec::new();
    for resp in [2, 3] {
        let bytes = reply_bytes(&server, resp, &format!("DLOCK.GRANTS inbox {cursor}"));
        shapes.push(bytes.lines().map(without_number).collect::<Vec<_>>());
    }
    assert_eq!(shapes[0], shapes[1]);
    let all = shapes[0].join(" ");
    let granted = |owner| format!("*8 $7 granted $2 r1 $4 door $6 {owner} :n :n :n :n");
    let expected = format!(
        "*3 :n :n *3 *4 $9 withdrawn $2 r1 $4 door $5 carol {} {}",
        granted("owner2"),
        granted("owner3")
    );
    assert_eq!(all, expected);
}

/// A line of a reply, with `:n` for an integer.
fn without_number(line: &str) -> String {
    if line.starts_with(':') { ":n" } else { line }.to_owned()
}

#[test]
fn names_are_binary_safe() {
    let (server, mut client) = start();
    let (name, key, owner, id): (&[u8], &[u8], &[u8], &[u8]) =
        (b"in\0box\r\n", b"ke\0y \xff", b"ow\0ner\n", b"i\0d\xfe");
    let grants = |client: &mut dlock_testkit::Client, cursor: u64| -> Value {
        let cursor = cursor.to_string();
        client.ask_args(&[b"DLOCK.GRANTS", name, cursor.as_bytes(), b"TTL", b"60000"])
    };
    let cursor = Delivery::parse(&grants(&mut client, 0)).cursor;
    client.ask_args::<Value>(&[b"DLOCK.ACQUIRE", key, b"alice", b"60000"]);
    let mut requester = server.client();
    let [before]: [u64; 1] = requester.ask_args(&[
        b"DLOCK.ACQUIRE",
        key,
        owner,
        b"60000",
        b"QUEUE",
        name,
        b"0",
        b"REQID",
        id,
    ]);
    assert_eq!(before, 0);
    client.ask_args::<i64>(&[b"DLOCK.RELEASE", key, b"alice"]);
    let (_, _, answers): (u64, u64, Vec<Vec<Value>>) =
        redis::from_redis_value(grants(&mut client, cursor)).expect("a reply of GRANTS");
    let names: Vec<Value> = [id, key, owner]
        .iter()
        .map(|name| Value::BulkString(name.to_vec()))
        .collect();
    assert_eq!(answers[0][1..4], names);
}

#[test]
fn reply_has_at_most_thousand_answers_oldest_first() {
    const REQUESTS: usize = 2_300;
    let (_server, mut client, mut inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", REQUESTS, "SHARED");
    client.release("door alice");
    client.wait_for_queue("door", 0);
    let mut seen = 0;
    for expected in [1_000, 1_000, 300, 0] {
        let cursor = inbox.cursor();
        let answers = inbox.call("").answers;
        assert_eq!(answers.len(), expected);
        for answer in &answers {
            assert_eq!(answer.shown(), format!("granted r{seen} door owner{seen}"));
            seen += 1;
        }
        // The reply was lost: the same answers.
        let again = inbox.call_at(cursor, "BLOCK 1").answers;
        assert_eq!(shown(&again), shown(&answers));
    }
    assert_eq!(client.stat("dlock_inbox_answers"), 0);
}
