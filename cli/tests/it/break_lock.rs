//! `dlock break`.

use dlock_testkit::{Server, start};

use crate::support::terminal::Terminal;
use crate::support::{at, dlock_at};

#[test]
fn break_grants_lock_to_next_waiter() {
    let (server, mut client) = start();
    let fence = client.acquire("job alice 600000").fence;
    let mut waiter = server.waiter("job bob 60000 BLOCK 0");
    at(&server, &["break", "--yes", "job"])
        .exits(0)
        .shows("alice")
        .shows("next waiter");
    assert!(waiter.granted().fence > fence);
}

#[test]
fn break_without_terminal_needs_yes() {
    let (server, mut client) = start();
    client.acquire("job alice 600000");
    at(&server, &["break", "job"]).exits(64).warns("--yes");
    assert_eq!(client.owner("job").as_deref(), Some("alice"));
}

/// A terminal with the question whether to break `job`.
#[track_caller]
fn asked(server: &Server) -> Terminal {
    let terminal = Terminal::start(&dlock_at(server, &["break", "job"]), 24, 120);
    terminal.wait_for("[y/N]");
    terminal
}

#[test]
fn break_asks_for_confirmation() {
    let (server, mut client) = start();
    for (answer, code, broken) in [
        ("n\r", 1, false),
        ("\r", 1, false),
        ("\x04", 1, false),
        ("y\r", 0, true),
    ] {
        client.acquire("job alice 60000");
        let mut terminal = asked(&server);
        assert!(terminal.text().contains("alice"));
        terminal.press(answer);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, code, "{answer:?}: {screen}");
        assert_eq!(client.owner("job").is_none(), broken, "{answer:?}: {screen}");
    }
}

#[test]
fn break_aborts_when_holder_changed_during_question() {
    let (server, mut client) = start();
    client.acquire("job alice 60000");
    let mut terminal = asked(&server);
    client.release("job alice");
    client.acquire("job bob 60000");
    terminal.press("y\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("holders have changed"), "{screen}");
    assert_eq!(client.owner("job").as_deref(), Some("bob"));
}

#[test]
fn break_spares_whoever_got_the_lock_after_it_was_shown() {
    let (server, mut client) = start();
    client.acquire("job alice 60000 SHARED");
    client.acquire("job bob 60000 SHARED");
    let mut terminal = asked(&server);
    client.release("job bob");
    client.acquire("job bob 60000 SHARED");
    client.acquire("job carol 60000 SHARED");
    terminal.press("y\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(client.lock("job").owners(), ["bob", "carol"]);
}

#[test]
fn break_owner_releases_only_the_holds_of_that_owner() {
    let (server, mut client) = start();
    client.acquire("job alice 60000 SHARED");
    client.acquire("job alice 60000 SHARED");
    client.acquire("job bob 60000 SHARED");
    let run = |owner: &str| at(&server, &["break", "--yes", "--owner", owner, "job"]);
    run("alice").exits(0);
    assert_eq!(client.lock("job").owners(), ["bob"]);
    run("alice").exits(1).warns("does not hold it");
}
