//! `dlock run` when the lock is lost or the server fails.

use crate::support::{Running, WAIT, is_running, script_at, wait_until_free};
use dlock_testkit::{Cluster, Proxy, Server, wait_for};
use nix::sys::signal::Signal;

/// Short, so that a loss is noticed quickly, but long enough for a slow machine.
const LEASE: [&str; 2] = ["--lease", "3s"];

#[test]
fn lost_lock_kills_whole_process_group() {
    let server = Server::start();
    let mut job = Running::script(
        &server,
        &LEASE,
        "trap '' TERM; sleep 1000 >&- 2>&- & echo $!; wait; echo never",
    );
    let grandchild = job.line();
    server.client().call("DEL job").unwrap();
    job.end().fails(79, "lost the lock job").warns("killing");
    wait_for("the end of the grandchild", || !is_running(&grandchild));
}

#[test]
fn on_lost_term_terminates_command_and_kills_it_after_a_delay() {
    let server = Server::start();
    for (options, then) in [
        (&["--on-lost", "term"][..], "exit 0"),
        (&["--on-lost", "term", "--kill-after", "300ms"], ":"),
    ] {
        let script = format!("trap 'echo asked; {then}' TERM; echo trapped; {WAIT}");
        let mut job = Running::ready(&server, &[&LEASE[..], options].concat(), &script);
        job.expect("trapped");
        server.client().call("DEL job").unwrap();
        job.expect("asked");
        job.end().exits(79);
    }
}

#[test]
fn on_lost_term_kills_remaining_processes_of_group() {
    let server = Server::start();
    let options = [&LEASE[..], &["--on-lost", "term"]].concat();
    let script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); exec sleep 1000 >&- 2>&-) & wait";
    let mut job = Running::script(&server, &options, script);
    let stubborn = job.line();
    server.client().call("DEL job").unwrap();
    job.end().exits(79);
    wait_for("the end of what ignores TERM", || !is_running(&stubborn));
}

#[test]
fn lost_lock_kills_command_with_blocked_stderr() {
    let mut server = Server::start();
    let command = |server: &Server| script_at(server.port(), &LEASE, "echo ready; exec sleep 1000");
    // The server rejects the renewal.
    let mut job = Running::start_with_blocked_stderr(&mut command(&server));
    job.expect("ready");
    server.client().call("DEL job").unwrap();
    job.end().exits(79);
    // The server is gone; failed renewals are reported too.
    let mut job = Running::start_with_blocked_stderr(&mut command(&server));
    job.expect("ready");
    server.kill();
    job.end().exits(79);
}

#[test]
fn on_lost_ignore_keeps_command_running() {
    let server = Server::start();
    let options = [&LEASE[..], &["--on-lost", "ignore"]].concat();
    let mut job = Running::script(&server, &options, "echo $DLOCK_OWNER; cat; exit 5");
    job.line();
    let mut client = server.client();
    client.call("DEL job").unwrap();
    client.acquire("job another 60000");
    job.wait_for_warning("keeps running");
    assert!(!job.has_ended());
    job.finish().exits(5);
    assert_eq!(client.owner("job").as_deref(), Some("another"));
}

#[test]
fn lock_lost_just_before_exit_is_reported_also_in_a_cluster() {
    let cluster = Cluster::start(1);
    for server in [&Server::start(), &cluster.nodes[0]] {
        let job = Running::ready(server, &["--lease", "60s"], "cat");
        server.client().call("DEL job").unwrap();
        job.finish().exits(79).warns("before the command exited");
    }
}

#[test]
fn short_server_outage_keeps_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut job = Running::start(&mut script_at(
        proxy.port(),
        &["--lease", "9s"],
        "echo ready; cat",
    ));
    job.expect("ready");
    proxy.refuse(true);
    proxy.cut();
    job.wait_for_warning("cannot renew");
    proxy.refuse(false);
    job.wait_for_warning("renewed the lease");
    assert_eq!(server.client().lock("job").holders.len(), 1);
    job.finish().exits(0);
}

#[test]
fn long_server_outage_ends_command() {
    let mut server = Server::start();
    let job = Running::ready(&server, &LEASE, "exec sleep 1000");
    server.kill();
    job.end().exits(79);
}

#[test]
fn server_restart_keeps_run_waiting() {
    let mut server = Server::with("appendonly yes\nappendfsync always");
    server.client().acquire("job another 600000");
    let mut job = Running::script(&server, &[], "echo ran");
    server.client().wait_for_queue("job", 1);
    server.crash_and_restart();
    let mut client = server.client();
    client.wait_for_queue("job", 1);
    client.release("job another");
    job.expect("ran");
    job.end().exits(0);
}

#[test]
fn server_down_at_exit_keeps_exit_code_of_command() {
    let mut server = Server::start();
    let job = Running::ready(&server, &["--lease", "60s"], "cat; exit 3");
    server.kill();
    job.finish().exits(3).warns("until its lease expires");
}

#[test]
fn dlock_stopped_past_lease_ends_command() {
    let server = Server::start();
    let job = Running::ready(&server, &["--lease", "3s"], "exec sleep 1000");
    job.signal(Signal::SIGSTOP);
    let mut client = server.client();
    wait_until_free(&mut client, "job");
    client.acquire("job another 60000");
    job.signal(Signal::SIGCONT);
    job.end().exits(79);
    assert_eq!(client.owner("job").as_deref(), Some("another"));
}
