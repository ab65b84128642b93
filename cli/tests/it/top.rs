//! `dlock top` on a terminal.

use std::process::Command;

use crate::support::terminal::Terminal;
use crate::support::{at, dlock, dlock_at, dlock_on};
use dlock_testkit::{Server, start, wait_for};

const FAST: [&str; 3] = ["top", "--every", "50ms"];

#[test]
fn top_lists_locks_as_they_come_and_go() {
    let (server, mut client) = start();
    client.acquire("busy alice 600000");
    client.acquire("quiet bob 600000");
    client.ask::<redis::Value>("DLOCK.GRANTS inbox 0 TTL 60000");
    client.ask::<redis::Value>("DLOCK.ACQUIRE busy erin 1000 QUEUE inbox 0 REQID e1");
    let _waiter = server.waiter("busy carol 1000 BLOCK 0");
    let terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 140);
    terminal.wait_for("2 locks, 2 waiting (1 by inbox)");
    terminal.wait_for("quiet");
    let text = terminal.text();
    let cells = |n: usize| -> Vec<&str> { text.lines().nth(n).unwrap_or("").split_whitespace().collect() };
    assert_eq!(
        cells(1).join(" "),
        "LOCK WAITING HELD FOR HELD BY WAITED LEASE KIND"
    );
    let [name, waiting, _, owner, _, _, kind] = cells(2)[..] else {
        panic!("{text}");
    };
    assert_eq!([name, waiting, owner, kind], ["busy", "2", "alice", "mutex"]);
    client.acquire("later dave 600000");
    terminal.wait_for("later");
    client.release("quiet bob");
    wait_for("its end", || !terminal.text().contains("quiet"));
}

#[test]
fn ctrl_c_ends_top() {
    let server = Server::start();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap : INT; \"$0\" top; echo ended $?; read line"])
        .arg(dlock(&[]).get_program())
        .env("DLOCK_URL", server.url());
    let mut terminal = Terminal::start(&shell, 24, 120);
    terminal.wait_for("0 locks");
    terminal.press("\x03");
    terminal.wait_for("ended 130");
}

#[test]
fn top_lists_only_names_that_match() {
    let (server, mut client) = start();
    client.acquire("busy alice 600000");
    client.acquire("quiet bob 600000");
    let terminal = Terminal::start(&dlock_at(&server, &["top", "bu*"]), 24, 110);
    terminal.wait_for("busy");
    assert!(!terminal.text().contains("quiet"));
}

#[test]
fn top_lists_locks_with_most_waiters_first() {
    let (server, mut client) = start();
    for name in ["a", "b", "c"] {
        client.acquire(&format!("{name} alice 600000"));
    }
    let _waiters = ["bob", "carol"].map(|owner| server.waiter(&format!("b {owner} 1000 BLOCK 0")));
    let _waiter = server.waiter("c dave 1000 BLOCK 0");
    let terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 110);
    wait_for("the order", || {
        let text = terminal.text();
        let rows = text.lines().skip(2);
        let names: Vec<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
        names == ["b", "c", "a"]
    });
}

#[test]
fn top_reconnects_after_server_restart() {
    let mut server = Server::start();
    server.client().acquire("before alice 600000");
    let terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 110);
    terminal.wait_for("before");
    server.kill();
    terminal.wait_for("cannot connect to");
    server.start_again();
    server.client().acquire("after alice 600000");
    terminal.wait_for("after");
    assert!(!terminal.text().contains("cannot connect"));
}

#[test]
fn top_names_the_role_of_the_server() {
    let server = Server::start();
    let replica = server.replica();
    for (server, role) in [(&server, "(primary): 0 locks"), (&replica, "(replica): 0 locks")] {
        Terminal::start(&dlock_at(server, &FAST), 24, 110).wait_for(role);
    }
}

#[test]
fn top_works_on_small_terminal() {
    let server = Server::start();
    server.client().acquire("a-lock-with-a-long-name alice 600000");
    let terminal = Terminal::start(&dlock_at(&server, &FAST), 4, 14);
    terminal.wait_for("LOCK");
}

#[test]
fn top_reports_failure_before_taking_screen() {
    let (server, without) = (Server::start(), Server::without_module(""));
    at(&server, &FAST).exits(64);
    server.client().config_set("requirepass", "secret");
    for (port, code, says) in [
        (1, 69, "cannot connect to"),
        (server.port(), 77, "password"),
        (without.port(), 69, "loadmodule"),
    ] {
        let (ended, screen) = Terminal::start(&dlock_on(port, &FAST), 24, 200).end();
        assert_eq!(ended, code, "{screen}");
        assert!(screen.contains(says), "{screen}");
    }
}
