//! The exact form of each reply in RESP2 and RESP3. Numbers are shown as `:n`.

use dlock_testkit::{Server, reply_bytes, start};

#[test]
fn grant_reply_is_array_of_four_integers() {
    let server = Server::start();
    for resp in [2, 3] {
        let shown = shape(&server, resp, "DLOCK.ACQUIRE door alice 10000");
        assert_eq!(shown, "*4 :n :n :n :n");
    }
}

#[test]
fn ungranted_reply_is_null_array() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    assert_eq!(shape(&server, 2, "DLOCK.ACQUIRE door bob 10000"), "*-1");
    assert_eq!(shape(&server, 3, "DLOCK.ACQUIRE door bob 10000"), "_");
}

#[test]
fn release_and_extend_reply_integer() {
    let server = Server::start();
    for resp in [2, 3] {
        server.client().acquire("door alice 10000");
        let reply = reply_bytes(&server, resp, "DLOCK.EXTEND door alice 60000");
        assert_eq!(reply, ":60000\r\n");
        assert_eq!(reply_bytes(&server, resp, "DLOCK.RELEASE door alice"), ":0\r\n");
    }
}

#[test]
fn owner_reply_is_bulk_string_or_null() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    for resp in [2, 3] {
        assert_eq!(reply_bytes(&server, resp, "DLOCK.OWNER door"), "$5\r\nalice\r\n");
    }
    assert_eq!(reply_bytes(&server, 2, "DLOCK.OWNER free"), "$-1\r\n");
    assert_eq!(reply_bytes(&server, 3, "DLOCK.OWNER free"), "_\r\n");
}

#[test]
fn info_reply_of_free_lock_is_null() {
    let server = Server::start();
    assert_eq!(reply_bytes(&server, 2, "DLOCK.INFO free"), "$-1\r\n");
    assert_eq!(reply_bytes(&server, 3, "DLOCK.INFO free"), "_\r\n");
}

#[test]
fn info_reply_is_map_with_holder_maps() {
    let (server, mut client) = start();
    client.acquire("door alice 10000 SHARED");
    client.acquire("door bob 10000 SHARED");
    let holder = |name: &str| {
        format!(
            "$5 owner ${} {name} $5 fence :n $5 holds :n $8 lease-ms :n $7 held-ms :n",
            name.len()
        )
    };
    for (resp, lock, each) in [(2, "*8", "*10"), (3, "%4", "%5")] {
        let expected = format!(
            "{lock} $5 limit :n $7 holders *2 {each} {} {each} {} $7 waiting :n $7 waiters *0",
            holder("alice"),
            holder("bob")
        );
        assert_eq!(shape(&server, resp, "DLOCK.INFO door"), expected);
    }
    assert!(reply_bytes(&server, 3, "DLOCK.INFO door").starts_with("%4\r\n$5\r\nlimit\r\n:-1\r\n"));
}

#[test]
fn error_reply_is_one_line_with_code_and_text() {
    let (server, mut client) = start();
    let fence = client.acquire("door alice 10000").fence;
    client.ok("SET text value");
    let rows = [
        ("DLOCK.RELEASE free alice", "-NOTHELD "),
        ("DLOCK.RELEASE door bob", "-NOTOWNER "),
        (
            &format!("DLOCK.RELEASE door alice FENCE {}", fence - 1),
            "-STALE ",
        ),
        ("DLOCK.ACQUIRE text alice 10", "-WRONGTYPE "),
        ("DLOCK.ACQUIRE door alice 0", "-ERR "),
        ("DLOCK.ACQUIRE door alice", "-ERR "),
    ];
    for resp in [2, 3] {
        for (command, first_word) in rows {
            let reply = reply_bytes(&server, resp, command);
            let is_expected = reply.starts_with(first_word) && reply.len() > first_word.len() + 2;
            assert!(is_expected, "{command}: {reply}");
            assert_eq!(reply.matches("\r\n").count(), 1, "{command}: {reply}");
        }
    }
}

#[test]
fn replies_keep_their_shape_in_transaction() {
    let server = Server::start();
    server.client().acquire("door alice 10000");
    let transaction = "MULTI\r\nDLOCK.ACQUIRE door bob 10000\r\nDLOCK.OWNER free\r\nDLOCK.INFO free\r\nDLOCK.ACQUIRE gate bob 10000\r\nEXEC";
    let queued = "+OK +QUEUED +QUEUED +QUEUED +QUEUED";
    let shown = shape(&server, 2, transaction);
    assert_eq!(shown, format!("{queued} *4 *-1 $-1 $-1 *4 :n :n :n :n"));
    server.client().release("gate bob");
    let shown = shape(&server, 3, transaction);
    assert_eq!(shown, format!("{queued} *4 _ _ _ *4 :n :n :n :n"));
}

/// The lines of a reply, with each number as `:n`.
fn shape(server: &Server, resp: u8, command: &str) -> String {
    let reply = reply_bytes(server, resp, command);
    let lines = reply
        .lines()
        .map(|line| if line.starts_with(':') { ":n" } else { line });
    lines.collect::<Vec<_>>().join(" ")
}
