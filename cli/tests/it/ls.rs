//! `dlock ls`.

use dlock_testkit::{Server, start, wait_for};

use crate::support::terminal::Terminal;
use crate::support::{at, dlock_at, json, names, tool};

#[test]
fn ls_lists_all_locks_by_name() {
    let (server, mut client) = start();
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
fn ls_pattern_filters_locks() {
    let (server, mut client) = start();
    for name in ["a1", "a2", "b1"] {
        client.acquire(&format!("{name} alice 60000"));
    }
    assert_eq!(names(&json(&server, &["ls", "a*"])), ["a1", "a2"]);
    assert_eq!(names(&json(&server, &["ls", "?1"])), ["a1", "b1"]);
    assert!(names(&json(&server, &["ls", "c*"])).is_empty());
}

#[test]
fn ls_lists_selected_database() {
    let server = Server::start();
    server.client().acquire("in-zero alice 60000");
    let mut client = server.client();
    client.ok("SELECT 3");
    client.acquire("in-three alice 60000");
    let port = server.port().to_string();
    tool(&["-p", &port, "-n", "3", "ls"])
        .shows("in-three")
        .hides("in-zero");
}

#[test]
fn ls_table_shows_holder_lease_and_waiters() {
    let (server, mut client) = start();
    client.config_set("dlock.max-lease-ms", "3600000");
    let fence = client.acquire("job alice 3600000").fence;
    client.acquire("readers one 60000 SHARED");
    client.acquire("readers two 60000 SHARED");
    client.acquire("seats one 60000 LIMIT 3");
    let _waiter = server.waiter("job bob 60000 BLOCK 0");
    let listed = at(&server, &["ls"]);
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
fn binary_names_are_escaped() {
    let server = Server::start();
    server
        .client()
        .ask_args::<redis::Value>(&[b"DLOCK.ACQUIRE", b"\xff\x1b[2J", b"ow\x07ner", b"60000"]);
    at(&server, &["ls"]).shows("\\xff\\x1b[2J").shows("ow\\x07ner");
    assert_eq!(json(&server, &["ls"])[0]["name_hex"], "ff1b5b324a");
    let shown = json(&server, &["show", "--hex", "FF1b5b324a"]);
    assert_eq!(shown["name_hex"], "ff1b5b324a");
    at(&server, &["break", "--yes", "--hex", "ff1b5b324a"]).exits(0);
    assert_eq!(json(&server, &["ls"]), serde_json::json!([]));
    for odd in ["ff1", "+f"] {
        at(&server, &["show", "--hex", odd]).exits(64);
    }
}

#[test]
fn ls_counts_queues_without_holder() {
    let server = Server::with("dlock.startup-grace-ms 600000");
    let _bob = server.waiter("job bob 60000 BLOCK 0");
    let listed = at(&server, &["ls"]).exits(0);
    assert!(
        listed.err.starts_with("dlock: 1 more locks have waiters"),
        "{listed:?}"
    );
    // JSON output has no such warning.
    assert!(names(&json(&server, &["ls"])).is_empty());
    assert_eq!(json(&server, &["show", "job"])["waiting"], 1);
    let quiet = Server::start();
    quiet.client().acquire("job alice 600000");
    let _bob = quiet.waiter("job bob 60000 BLOCK 0");
    assert_eq!(at(&quiet, &["ls"]).err, "");
}

#[test]
fn ls_counts_locks_without_permission() {
    let (server, mut client) = start();
    client.acquire("lock:mine alice 60000");
    client.acquire("other alice 60000");
    client.ok("ACL SETUSER viewer on >secret resetkeys ~lock:* nocommands +dlock.info +info +scan +ping");
    let login = ["--user", "viewer", "-a", "secret", "ls"];
    at(&server, &login)
        .exits(0)
        .shows("lock:mine")
        .hides("other")
        .warns("1 more");
    let output = json(&server, &login);
    assert_eq!(names(&output), ["lock:mine"]);
    // Without permission for any lock it is an error.
    client.ok("ACL SETUSER viewer -dlock.info");
    at(&server, &login).exits(77);
}

#[test]
fn no_color_disables_colors() {
    let server = Server::start();
    server.client().acquire("job alice 60000");
    let is_bold = |variable: &str| {
        let mut command = dlock_at(&server, &["ls"]);
        command.env(variable, "1");
        let terminal = Terminal::start(&command, 24, 120);
        terminal.wait_for("alice");
        terminal.is_bold(0, 0)
    };
    assert!(is_bold("SOME_OTHER_VARIABLE"));
    assert!(!is_bold("NO_COLOR"));
}

#[test]
fn ls_filters_by_owner_and_hold_duration() {
    let (server, mut client) = start();
    client.acquire("first web-1:7:ab 600000");
    client.acquire("second web-2:9:cd 600000");
    let _waiter = server.waiter("second web-1:8:ef 600000 BLOCK 0");
    assert_eq!(
        names(&json(&server, &["ls", "--owner", "web-1:"])),
        ["first", "second"]
    );
    assert_eq!(names(&json(&server, &["ls", "--owner", "web-2"])), ["second"]);
    assert!(names(&json(&server, &["ls", "--held-over", "1h"])).is_empty());
    wait_for("the locks to be held for a while", || {
        names(&json(&server, &["ls", "--held-over", "200ms"])).len() == 2
    });
}

#[test]
fn long_names_are_truncated_on_terminal_only() {
    let server = Server::start();
    let (name, owner) = ("x".repeat(200), format!("alice{}", "y".repeat(200)));
    server.client().acquire(&format!("{name} {owner} 60000"));
    at(&server, &["ls"]).shows(&name).shows(&owner);
    let (_, screen) = Terminal::start(&dlock_at(&server, &["ls"]), 24, 150).end();
    let row = screen.lines().nth(1).expect("a row");
    assert_eq!(row.matches('…').count(), 2, "{screen}");
    assert!(row.contains("alice"), "{screen}");
}
