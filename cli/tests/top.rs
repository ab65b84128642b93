//! `dlock top` on a terminal.

mod support;

use dlock_testkit::Server;
use support::terminal::Terminal;
use support::{dlock_at, dlock_on, outcome};

const FAST: [&str; 3] = ["top", "--every", "50ms"];

#[test]
fn locks_are_watched_chosen_and_looked_into() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("busy alice 600000");
    client.acquire("quiet bob 600000");
    let _waiter = server.waiter("busy carol 1000 BLOCK 0");
    let mut terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 110);
    terminal.wait_for("2 locks, 1 waiting");
    terminal.wait_for("quiet");
    client.acquire("later dave 600000");
    terminal.wait_for("later");
    terminal.press("/bus\r");
    terminal.wait_for("/bus  q quit");
    assert!(!terminal.text().contains("quiet"));
    terminal.press("\r");
    terminal.wait_for("held by alice");
    assert!(terminal.text().contains("carol (mutex)"), "{}", terminal.text());
    client.release("busy alice");
    terminal.wait_for("held by carol");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn a_server_that_goes_away_and_comes_back_is_told_and_found_again() {
    let mut server = Server::start();
    server.client().acquire("before alice 600000");
    let mut terminal = Terminal::start(&dlock_at(&server, &FAST), 24, 110);
    terminal.wait_for("before");
    server.kill();
    terminal.wait_for("cannot reach the server");
    server.start_again();
    server.client().acquire("after alice 600000");
    terminal.wait_for("after");
    assert!(!terminal.text().contains("cannot reach"));
    terminal.press("\x03");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn a_narrow_terminal_is_enough() {
    let server = Server::start();
    server.client().acquire("a-lock-with-a-long-name alice 600000");
    let mut terminal = Terminal::start(&dlock_at(&server, &FAST), 4, 14);
    terminal.wait_for("LOCK");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn what_is_wrong_is_told_before_the_screen_is_taken() {
    let server = Server::start();
    let redirected = outcome(&mut dlock_at(&server, &FAST));
    assert_eq!(redirected.code, 64, "{redirected:?}");
    let (code, screen) = Terminal::start(&dlock_on(1, &FAST), 24, 200).end();
    assert_eq!(code, 69, "{screen}");
    assert!(screen.contains("cannot reach the server"), "{screen}");
    let without = Server::without_module("");
    let (code, screen) = Terminal::start(&dlock_at(&without, &FAST), 24, 200).end();
    assert_eq!(code, 69, "{screen}");
    assert!(screen.contains("loadmodule"), "{screen}");
}
