//! `dlock ls`, `dlock show` and `dlock break`.

mod support;

use dlock_testkit::Server;
use serde_json::Value;
use support::{dlock, dlock_at, json, names, outcome};

#[test]
fn all_locks_are_listed_by_name_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("SET other-key x");
    for n in 0..1500 {
        client.acquire(&format!("job:{n:04} owner{n} 600000"));
    }
    let listed = json(&server, &["ls"]);
    let expected: Vec<String> = (0..1500).map(|n| format!("job:{n:04}")).collect();
    assert_eq!(names(&listed), expected);
    assert_eq!(listed[42]["holders"][0]["owner"], "owner42");
}

#[test]
fn a_pattern_chooses_locks() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["a1", "a2", "b1"] {
        client.acquire(&format!("{name} alice 60000"));
    }
    assert_eq!(names(&json(&server, &["ls", "a*"])), ["a1", "a2"]);
    assert_eq!(names(&json(&server, &["ls", "?1"])), ["a1", "b1"]);
    assert!(names(&json(&server, &["ls", "c*"])).is_empty());
}

#[test]
fn a_database_of_its_own_is_looked_at() {
    let server = Server::start();
    server.client().acquire("in-zero alice 60000");
    let mut client = server.client();
    client.ok("SELECT 3");
    client.acquire("in-three alice 60000");
    let port = server.port().to_string();
    let listed = outcome(&mut dlock(&["-p", &port, "-n", "3", "ls"]));
    assert!(
        listed.out.contains("in-three") && !listed.out.contains("in-zero"),
        "{listed:?}"
    );
}

#[test]
fn the_table_shows_what_people_ask_for() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.acquire("job alice 3600000").fence;
    client.acquire("readers one 60000 SHARED");
    client.acquire("readers two 60000 SHARED");
    client.acquire("seats one 60000 LIMIT 3");
    let _waiter = server.waiter("job bob 60000 BLOCK 0");
    let listed = outcome(&mut dlock_at(&server, &["ls"]));
    let lines: Vec<Vec<&str>> = listed
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let fence = fence.to_string();
    assert_eq!(lines[1][..4], ["job", "mutex", "alice", &fence]);
    assert_eq!(lines[1][5..], ["59m59s", "1"]);
    assert_eq!(lines[2][..4], ["readers", "shared", "one", "+1"]);
    assert_eq!(lines[3][..4], ["seats", "limit", "3", "one"]);
}

#[test]
fn one_lock_is_shown_with_holders_and_queue() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.acquire("job alice 600000").fence;
    client.acquire("job alice 600000");
    let _bob = server.waiter("job bob 60000 BLOCK 0");
    let _carol = server.waiter("job carol 60000 SHARED BLOCK 500000");
    let lock = json(&server, &["show", "job"]);
    assert_eq!(lock["limit"], 1);
    let holder = &lock["holders"][0];
    assert_eq!((&holder["owner"], &holder["holds"]), (&"alice".into(), &2.into()));
    assert_eq!(holder["fence"], fence);
    assert_eq!(lock["waiting"], 2);
    assert_eq!(lock["waiters"][0]["owner"], "bob");
    assert_eq!(lock["waiters"][0]["timeout_ms"], Value::Null);
    assert_eq!(lock["waiters"][1]["timeout_ms"], 500_000);
    let text = outcome(&mut dlock_at(&server, &["show", "job"]));
    for words in [
        "mutex, held by 1",
        "alice",
        "Waiting: 2",
        "bob",
        "no limit",
        "carol",
        "shared",
        "8m20s",
    ] {
        assert!(text.out.contains(words), "{words}: {}", text.out);
    }
}

#[test]
fn a_lock_that_nobody_holds_is_told_by_text_and_code() {
    let server = Server::start();
    let shown = outcome(&mut dlock_at(&server, &["show", "job"]));
    assert_eq!(shown.code, 1);
    assert!(shown.out.contains("nobody holds it"), "{shown:?}");
    let lock = json(&server, &["show", "job"]);
    assert_eq!(
        (&lock["holders"], &lock["waiting"]),
        (&Value::Array(vec![]), &0.into())
    );
    assert_eq!(
        outcome(&mut dlock_at(&server, &["break", "--yes", "job"])).code,
        1
    );
}

#[test]
fn names_of_any_bytes_are_shown_harmlessly() {
    let server = Server::start();
    server
        .client()
        .ask_args::<redis::Value>(&[b"DLOCK.ACQUIRE", b"\xff\x1b[2J", b"ow\x07ner", b"60000"]);
    let listed = outcome(&mut dlock_at(&server, &["ls"]));
    assert!(
        listed.out.contains("\\xff\\x1b[2J") && listed.out.contains("ow\\x07ner"),
        "{listed:?}"
    );
    assert_eq!(json(&server, &["ls"])[0]["name_hex"], "ff1b5b324a");
}

#[test]
fn breaking_frees_the_lock_for_the_next_in_the_queue() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.acquire("job alice 600000").fence;
    let mut waiter = server.waiter("job bob 60000 BLOCK 0");
    let broken = outcome(&mut dlock_at(&server, &["break", "--yes", "job"]));
    assert_eq!(broken.code, 0, "{broken:?}");
    assert!(
        broken.out.contains("alice") && broken.out.contains("next in the queue"),
        "{broken:?}"
    );
    assert!(waiter.granted().fence > fence);
}

#[test]
fn without_a_terminal_nothing_is_broken_unasked() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("job alice 600000");
    let refused = outcome(&mut dlock_at(&server, &["break", "job"]));
    assert_eq!(refused.code, 64);
    assert!(refused.err.contains("--yes"), "{refused:?}");
    assert_eq!(client.owner("job").as_deref(), Some("alice"));
}

#[test]
fn queues_that_nobody_holds_are_counted_because_they_cannot_be_listed() {
    let server = Server::with("dlock.startup-grace-ms 600000");
    let _bob = server.waiter("job bob 60000 BLOCK 0");
    let listed = outcome(&mut dlock_at(&server, &["ls"]));
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.err.starts_with("dlock: 1 more waited for"), "{listed:?}");
    // What programs read is not disturbed.
    assert!(names(&json(&server, &["ls"])).is_empty());
    assert_eq!(json(&server, &["show", "job"])["waiting"], 1);
    let quiet = Server::start();
    quiet.client().acquire("job alice 600000");
    let _bob = quiet.waiter("job bob 60000 BLOCK 0");
    assert_eq!(outcome(&mut dlock_at(&quiet, &["ls"])).err, "");
}

#[test]
fn locks_that_the_user_may_not_look_at_are_left_out_and_counted() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("lock:mine alice 60000");
    client.acquire("other alice 60000");
    client.ok("ACL SETUSER viewer on >secret resetkeys ~lock:* nocommands +dlock.info +info +scan +ping");
    let login = ["--user", "viewer", "-a", "secret", "ls"];
    let told = outcome(&mut dlock_at(&server, &login));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.out.contains("lock:mine") && !told.out.contains("other"),
        "{told:?}"
    );
    assert!(told.err.contains("1 more"), "{told:?}");
    let told = json(&server, &login);
    assert_eq!(names(&told), ["lock:mine"]);
    // Who may look at none is told so.
    client.ok("ACL SETUSER viewer -dlock.info");
    let refused = outcome(&mut dlock_at(&server, &login));
    assert_eq!(refused.code, 77, "{refused:?}");
}
