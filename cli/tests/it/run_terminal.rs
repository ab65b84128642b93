//! `dlock run` on a terminal.

use std::process::Command;

use dlock_testkit::{Server, start};

use crate::support::terminal::Terminal;
use crate::support::{dlock, dlock_at, wait_until_free};

fn run(server: &Server, script: &str) -> Command {
    dlock_at(server, &["run", "job", "--", "sh", "-c", script])
}

/// An interactive shell with `dlock` in its PATH.
fn shell(server: &Server) -> Terminal {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    let tool = dlock(&[]);
    let directory = std::path::Path::new(tool.get_program())
        .parent()
        .expect("a directory")
        .display();
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{directory}:{path}"))
        .env("PS1", "prompt> ");
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    let shell = Terminal::start(&command, 24, 80);
    shell.wait_for("prompt>");
    shell
}

#[test]
fn command_runs_in_foreground() {
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
    let mut terminal = Terminal::start(&run(&server, "echo ready; read line; echo never"), 24, 80);
    terminal.wait_for("ready");
    terminal.press("\x03");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(!screen.contains("never"), "{screen}");
    assert!(server.client().find_lock("job").is_none());
}

#[test]
fn ctrl_c_while_waiting_cancels_request() {
    let (server, mut client) = start();
    client.acquire("job another 60000");
    let terminal = Terminal::start(&run(&server, "true"), 24, 80);
    client.wait_for_queue("job", 1);
    terminal.exits("\x03", 130);
    assert_eq!(client.waiting("job"), 0);
}

#[test]
fn ctrl_z_stops_the_command_and_fg_continues_it() {
    let (server, mut client) = start();
    let mut shell = shell(&server);
    // Reads once before it is ready: that takes until it is in the foreground.
    shell.press("dlock run --lease 60s job -- sh -c 'echo star''ted; read go; echo re''ady; read line; echo got $line'\r");
    shell.wait_for("started");
    shell.press("go\r");
    shell.wait_for("ready");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    assert_eq!(client.lock("job").holders.len(), 1);
    shell.press("echo the shell is ba''ck\r");
    shell.wait_for("the shell is back");
    shell.press("fg\r");
    // Input typed earlier would go to the shell.
    shell.wait_for("prompt> fg\ndlock run");
    shell.press("words\r");
    shell.wait_for("got words");
    wait_until_free(&mut client, "job");
    shell.exits("exit 5\r", 5);
}

#[test]
fn ctrl_z_while_waiting_stops_dlock_and_fg_continues_it() {
    let (server, mut client) = start();
    client.acquire("job another 60000");
    let mut shell = shell(&server);
    shell.press("dlock run job -- sh -c 'echo wor''ks'\r");
    client.wait_for_queue("job", 1);
    shell.press("\x1a");
    shell.wait_for("Stopped");
    shell.press("fg\r");
    shell.wait_for("prompt> fg\ndlock run");
    client.release("job another");
    shell.wait_for("works");
    shell.exits("exit\r", 0);
}

#[test]
fn command_stopped_past_lease_does_not_continue() {
    let (server, mut client) = start();
    let mut shell = shell(&server);
    // Reads once before it is ready, which takes until it is in the foreground. Then it waits in a builtin: Ctrl-Z while
    // the shell starts a program may stop only the child of its vfork.
    let script = "echo star''ted; read go; trap \"echo went o''n\" CONT; echo re''ady; read line";
    shell.press(&format!("dlock run --lease 3s job -- sh -c '{script}'\r"));
    shell.wait_for("started");
    shell.press("go\r");
    shell.wait_for("ready");
    shell.press("\x1a");
    shell.wait_for("Stopped");
    wait_until_free(&mut client, "job");
    shell.press("fg\r");
    shell.wait_for("lost the lock");
    shell.press("echo the code is $?\r");
    shell.wait_for("the code is 79");
    assert!(!shell.text().contains("went on"), "{}", shell.text());
    shell.exits("exit\r", 0);
}

#[test]
fn command_with_redirected_input_gets_terminal() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.press("true | dlock run job -- sh -c 'echo re''ady; read line </dev/tty; echo got $line'\r");
    shell.wait_for("ready");
    shell.press("words\r");
    shell.wait_for("got words");
    shell.exits("exit\r", 0);
}

#[test]
fn tostop_terminal_does_not_delay_kill() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.press("stty tostop; dlock run --lease 3s job -- sh -c 'echo re''ady; read line'\r");
    shell.wait_for("ready");
    server.client().call("DEL job").unwrap();
    // The command would read what is typed before the shell has the terminal again.
    shell.wait_for("killing the command\nprompt>");
    shell.press("echo the code is $?\r");
    shell.wait_for("the code is 79");
    shell.exits("exit\r", 0);
}

#[test]
fn ctrl_z_without_shell_continues_command() {
    let server = Server::start();
    let mut terminal = Terminal::start(&run(&server, "echo ready; read line; echo got $line"), 24, 80);
    terminal.wait_for("ready");
    terminal.press("\x1a");
    terminal.press("words\r");
    terminal.wait_for("got words");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn background_job_stays_in_background() {
    let (server, mut client) = start();
    let mut shell = shell(&server);
    shell.press("dlock run job -- sh -c 'sleep 0.2; echo do''ne' &\r");
    shell.wait_for("done");
    wait_until_free(&mut client, "job");
    shell.exits("exit\r", 0);
}

#[test]
fn terminal_returns_to_script_after_command() {
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
fn long_wait_reports_holder_and_queue() {
    let (server, mut client) = start();
    client.acquire("job alice 600000");
    let mut bob = server.waiter("job bob 600000 BLOCK 0");
    let terminal = Terminal::start(&run(&server, "echo works"), 24, 80);
    terminal.wait_for("waiting for job: held by alice for");
    terminal.wait_for("1 ahead");
    client.release("job alice");
    bob.granted();
    client.release("job bob");
    assert_eq!(terminal.end().0, 0);
}
