//! `--wait` and `--try` of `dlock run` bound everything before the command starts.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{Outcome, Running, dlock, on, outcome, script_at, wait_until_free};
use dlock_testkit::{Server, pause, start, wait_for};
use nix::sys::signal::Signal;

/// More than the 2 s of `--try`, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(5);

#[track_caller]
fn ends_soon(run: impl FnOnce() -> Outcome) -> Outcome {
    let start = Instant::now();
    let ended = run();
    let took = start.elapsed();
    assert!(took < SOON, "took {took:?}: {ended:?}");
    ended
}

#[test]
fn server_that_does_not_reply_is_given_up_in_time() {
    let (stopped, (paused, mut client)) = (Server::start(), start());
    stopped.stop();
    client.ok("CLIENT PAUSE 60000 ALL");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_port = silent.local_addr().expect("an address").port();
    for port in [stopped.port(), paused.port(), silent_port] {
        for options in [&["--wait", "500ms"][..], &["--try"]] {
            let run = [&["run"], options, &["job", "--", "echo", "ran"]].concat();
            ends_soon(|| on(port, &run)).fails(69, &format!("({})", options[0]));
        }
    }
}

#[test]
fn quorum_without_majority_is_given_up_in_time() {
    let servers: Vec<Server> = (0..3).map(|_| Server::with("dlock.quorum yes")).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let urls = urls.join(",");
    servers[..2].iter().for_each(Server::stop);
    let run = |options: &[&str]| {
        let end = ["job", "--", "echo", "ran"];
        ends_soon(|| outcome(&mut dlock(&[&["run", "--quorum", &urls], options, &end].concat())))
    };
    run(&["--wait", "500ms"]).fails(75, "not granted within 500ms (--wait)");
    run(&["--try"]).fails(69, "2 servers had to agree");
}

#[test]
fn command_does_not_start_after_its_wait_is_over() {
    let (server, mut client) = start();
    client.acquire("job alice 60000");
    let mut waiting = script_at(server.port(), &["--wait", "1s"], "echo ran");
    let waiting = Running::start(&mut waiting);
    wait_for("the request", || client.lock("job").waiting == 1);
    waiting.signal(Signal::SIGSTOP);
    client.release("job alice");
    pause(1000);
    waiting.signal(Signal::SIGCONT);
    waiting.end().fails(75, "job");
    wait_until_free(&mut client, "job");
}
