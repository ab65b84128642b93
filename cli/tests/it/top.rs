//! `dlock top` on a terminal.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::terminal::Terminal;
use crate::support::{at, dlock, dlock_at, dlock_on};
use dlock_testkit::{Proxy, Server, Way, start, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
        cells(2).join(" "),
        "LOCK WAITING HELD FOR WAITED LEASE KIND HELD BY"
    );
    let [name, waiting, _, _, _, kind, owner] = cells(3)[..] else {
        panic!("{text}");
    };
    assert_eq!([name, waiting, kind, owner], ["busy", "2", "mutex", "alice"]);
    client.call("DLOCK.EXTEND quiet alice 1000").unwrap_err();
    terminal.wait_for("0 timeouts, 0 expired, 1 errors, 0 late releases");
    client.acquire("later dave 600000");
    terminal.wait_for("later");
    client.release("quiet bob");
    wait_for("its end", || !terminal.text().contains("quiet"));
    terminal.exits("q", 0);
}

#[test]
fn top_lists_only_names_that_match() {
    let (server, mut client) = start();
    client.acquire("busy alice 600000");
    client.acquire("quiet bob 600000");
    let terminal = Terminal::start(&dlock_at(&server, &["top", "bu*"]), 24, 110);
    terminal.wait_for("busy");
    assert!(!terminal.text().contains("quiet"));
    terminal.exits("q", 0);
}

#[test]
fn top_sorts_by_each_column() {
    let (server, mut client) = start();
    // `top` reads the locks one after the other: ages that it orders must differ by more than that takes.
    let age = || thread::sleep(Duration::from_millis(300));
    client.acquire("first alice 600000");
    age();
    client.acquire("second bob 600000");
    let _waiter = server.waiter("second carol 1000 BLOCK 0");
    age();
    let _others = ["dave", "erin"].map(|owner| server.waiter(&format!("first {owner} 1000 BLOCK 0")));
    let mut terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 110);
    terminal.wait_for("second");
    let sorted = [
        ("most waiting", ("first", "second")),
        ("longest held", ("first", "second")),
        ("longest wait", ("second", "first")),
        ("name", ("first", "second")),
    ];
    for (order, (above, below)) in sorted {
        terminal.wait_for(&format!("s sort: {order}"));
        let text = terminal.text();
        let at = |name: &str| text.lines().position(|line| line.starts_with(name));
        assert!(at(above) < at(below), "{order}:\n{text}");
        terminal.press("s");
    }
    terminal.exits("q", 0);
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
    terminal.exits("\x03", 0);
}

#[test]
fn top_names_the_role_of_the_server() {
    let server = Server::start();
    let replica = server.replica();
    for (server, role) in [(&server, "(primary): 0 locks"), (&replica, "(replica): 0 locks")] {
        let mut terminal = Terminal::start(&dlock_at(server, &FAST), 24, 110);
        terminal.wait_for(role);
        terminal.press("q");
        terminal.end();
    }
}

#[test]
fn top_works_on_small_terminal() {
    let server = Server::start();
    server.client().acquire("a-lock-with-a-long-name alice 600000");
    let terminal = Terminal::start(&dlock_at(&server, &FAST), 4, 14);
    terminal.wait_for("LOCK");
    terminal.exits("q", 0);
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

/// The terminal modes that `stty` printed.
fn modes(screen: &str) -> Vec<&str> {
    screen
        .lines()
        .filter_map(|line| line.strip_prefix("modes "))
        .collect()
}

#[test]
fn signal_restores_terminal() {
    let server = Server::start();
    server.client().acquire("busy alice 600000");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pid_file = directory.path().join("pid");
    let script = "trap : HUP INT TERM; echo modes $(stty -g); sh -c 'echo $$ >$PID_FILE; exec \"$0\" top --every 50ms' \"$0\"; \
                  echo ended $?; echo modes $(stty -g); read line";
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(dlock(&[]).get_program());
        shell
            .env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()))
            .env("PID_FILE", &pid_file);
        let mut terminal = Terminal::start(&shell, 24, 120);
        terminal.wait_for("busy");
        assert!(terminal.is_full_screen());
        let pid = fs::read_to_string(&pid_file).expect("the number of the process");
        let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
        kill(pid, signal).expect("it runs");
        terminal.wait_for(&format!("ended {code}"));
        wait_for("the modes after it", || modes(&terminal.text()).len() == 2);
        let screen = terminal.text();
        let modes = modes(&screen);
        assert_eq!(modes[0], modes[1], "{signal}: {screen}");
        assert!(!terminal.is_full_screen(), "{signal}: {screen}");
        terminal.press("\r");
        terminal.end();
    }
}

#[test]
fn top_reports_a_server_that_does_not_reply() {
    let server = Server::start();
    server.client().acquire("job alice 600000");
    let proxy = Proxy::to(server.port());
    let terminal = Terminal::start(&dlock_on(proxy.port(), &FAST), 24, 120);
    terminal.wait_for("alice");
    proxy.delay(Way::ToClient, Duration::from_secs(60));
    terminal.wait_for("no reply for");
    terminal.exits("q", 0);
}
