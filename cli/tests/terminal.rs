//! The tool on a terminal.

mod support;

use std::process::Command;
use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};
use support::terminal::Terminal;
use support::{dlock, dlock_at, dlock_on, wait_until_free};

fn run(server: &Server, script: &str) -> Command {
    dlock_at(server, &["run", "job", "--", "sh", "-c", script])
}

/// An interactive shell that finds the tool in its path, as `dlock`.
fn shell(server: &Server) -> Terminal {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    let tool = dlock(&[]);
    let folder = std::path::Path::new(tool.get_program())
        .parent()
        .expect("a folder")
        .display();
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{folder}:{path}"))
        .env("PS1", "prompt> ");
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    let shell = Terminal::start(&command, 24, 80);
    shell.wait_for("prompt>");
    shell
}

#[test]
fn the_command_is_in_the_foreground() {
    let server = Server::start();
    let mut terminal = Terminal::start(&run(&server, "echo ready; read line; echo got $line"), 24, 80);
    terminal.wait_for("ready");
    terminal.press("some words\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("got some words"), "{screen}");
}

#[test]
fn ctrl_c_ends_the_command_and_frees_the_lock() {
    let server = Server::start();
    let mut terminal = Terminal::start(&run(&server, "echo ready; sleep 1000; echo never"), 24, 80);
    terminal.wait_for("ready");
    terminal.press("\x03");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(!screen.contains("never"), "{screen}");
    assert!(server.client().find_lock("job").is_none());
}

#[test]
fn ctrl_c_while_it_waits_takes_the_request_back() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("job somebody 60000");
    let mut terminal = Terminal::start(&run(&server, "true"), 24, 80);
    client.wait_for_queue("job", 1);
    terminal.press("\x03");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert_eq!(client.waiting("job"), 0);
}

#[test]
fn ctrl_z_stops_the_command_and_fg_continues_it() {
    let server = Server::start();
    let mut client = server.client();
    let mut shell = shell(&server);
    shell.press("dlock run --lease 60s job -- sh -c 'echo re''ady; read line; echo got $line'\r");
    shell.wait_for("ready");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    assert_eq!(client.lock("job").holders.len(), 1);
    shell.press("echo the shell is ba''ck\r");
    shell.wait_for("the shell is back");
    shell.press("fg\r");
    // Typed sooner, it would be the shell's, not that of the command.
    shell.wait_for("prompt> fg\ndlock run");
    shell.press("words\r");
    shell.wait_for("got words");
    wait_until_free(&mut client, "job");
    shell.press("exit 5\r");
    assert_eq!(shell.end().0, 5);
}

#[test]
fn ctrl_z_while_it_waits_stops_it_and_fg_continues_it() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("job somebody 60000");
    let mut shell = shell(&server);
    shell.press("dlock run job -- sh -c 'echo wor''ks'\r");
    client.wait_for_queue("job", 1);
    shell.press("\x1a");
    shell.wait_for("Stopped");
    shell.press("fg\r");
    shell.wait_for("prompt> fg\ndlock run");
    client.release("job somebody");
    shell.wait_for("works");
    shell.press("exit\r");
    assert_eq!(shell.end().0, 0);
}

#[test]
fn a_command_whose_lease_ended_while_it_was_stopped_does_not_go_on() {
    let server = Server::start();
    let mut client = server.client();
    let mut shell = shell(&server);
    // Says so when it goes on.
    let script = "trap \"echo went o''n\" CONT; echo re''ady; while :; do sleep 0.01; done";
    shell.press(&format!("dlock run --lease 1s job -- sh -c '{script}'\r"));
    shell.wait_for("ready");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    wait_until_free(&mut client, "job");
    shell.press("fg\r");
    shell.wait_for("is lost");
    shell.press("echo the code is $?\r");
    shell.wait_for("the code is 79");
    assert!(!shell.text().contains("went on"), "{}", shell.text());
    shell.press("exit\r");
    assert_eq!(shell.end().0, 0);
}

#[test]
fn a_command_gets_the_terminal_though_its_input_is_another() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.press("true | dlock run job -- sh -c 'echo re''ady; read line </dev/tty; echo got $line'\r");
    shell.wait_for("ready");
    shell.press("words\r");
    shell.wait_for("got words");
    shell.press("exit\r");
    assert_eq!(shell.end().0, 0);
}

#[test]
fn a_terminal_that_stops_who_writes_from_the_background_does_not_keep_a_command_from_being_killed() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.press("stty tostop; dlock run --lease 1s job -- sh -c 'echo re''ady; read line'\r");
    shell.wait_for("ready");
    server.client().call("DEL job").unwrap();
    shell.wait_for("is killed");
    shell.press("echo the code is $?\r");
    shell.wait_for("the code is 79");
    shell.press("exit\r");
    assert_eq!(shell.end().0, 0);
}

#[test]
fn ctrl_z_without_a_shell_does_not_stop_for_ever() {
    let server = Server::start();
    let mut terminal = Terminal::start(&run(&server, "echo ready; read line; echo got $line"), 24, 80);
    terminal.wait_for("ready");
    terminal.press("\x1a");
    terminal.press("words\r");
    terminal.wait_for("got words");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn a_job_in_the_background_runs_there() {
    let server = Server::start();
    let mut client = server.client();
    let mut shell = shell(&server);
    shell.press("dlock run job -- sh -c 'sleep 0.2; echo do''ne' &\r");
    shell.wait_for("done");
    wait_until_free(&mut client, "job");
    shell.press("exit\r");
    assert_eq!(shell.end().0, 0);
}

#[test]
fn after_the_command_the_terminal_is_the_scripts_again() {
    let server = Server::start();
    let mut script = Command::new("sh");
    let tool = dlock(&[]);
    script.args([
        "-c",
        "\"$0\" run job -- true; echo ready; read line; echo got $line",
    ]);
    script.arg(tool.get_program());
    script.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    let mut terminal = Terminal::start(&script, 24, 80);
    terminal.wait_for("ready");
    terminal.press("words\r");
    terminal.wait_for("got words");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn breaking_a_lock_asks_first() {
    let server = Server::start();
    let mut client = server.client();
    for (answer, code, broken) in [
        ("n\r", 1, false),
        ("\r", 1, false),
        ("\x04", 1, false),
        ("y\r", 0, true),
    ] {
        client.acquire("job alice 60000");
        let mut terminal = Terminal::start(&dlock_at(&server, &["break", "job"]), 24, 120);
        terminal.wait_for("[y/N]");
        assert!(terminal.text().contains("alice"));
        terminal.press(answer);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, code, "{answer:?}: {screen}");
        assert_eq!(client.owner("job").is_none(), broken, "{answer:?}: {screen}");
    }
}

#[test]
fn a_lock_that_changes_hands_while_it_is_asked_is_not_broken() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("job alice 60000");
    let mut terminal = Terminal::start(&dlock_at(&server, &["break", "job"]), 24, 120);
    terminal.wait_for("[y/N]");
    client.release("job alice");
    client.acquire("job bob 60000");
    terminal.press("y\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("other holders"), "{screen}");
    assert_eq!(client.owner("job").as_deref(), Some("bob"));
}

#[test]
fn colours_are_for_terminals_that_want_them() {
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
fn a_long_scan_shows_a_progress_bar_that_goes_away() {
    let server = Server::start();
    server.client().ask::<redis::Value>("DEBUG POPULATE 400000");
    server.client().acquire("job alice 60000");
    // A slow network makes it long.
    let proxy = Proxy::to(server.port());
    proxy.delay(Way::ToClient, Duration::from_millis(5));
    let terminal = Terminal::start(&dlock_on(proxy.port(), &["ls"]), 24, 120);
    terminal.wait_for("keys,");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("alice") && !screen.contains("keys,"), "{screen}");
}
