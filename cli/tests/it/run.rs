//! `dlock run`: the lock, the command, signals and exit codes.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Running, WAIT, at, dlock_at, is_running, json, script_at, wait_until_free};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, pause, start, wait_for};
use nix::sys::signal::Signal;

#[test]
fn command_holds_lock_and_gets_owner_and_fence() {
    let (server, mut client) = start();
    let mut job = Running::script(&server, &[], "echo $DLOCK_OWNER; echo $DLOCK_FENCE; cat");
    let (owner, fence) = (job.line(), job.line());
    let lock = client.lock("job");
    assert_eq!((lock.owners(), lock.limit), (vec![owner], 1));
    assert_eq!(lock.holders[0].fence.to_string(), fence);
    job.finish().exits(0);
    assert!(client.find_lock("job").is_none());
}

#[test]
fn exit_code_of_command_is_passed_on() {
    let server = Server::start();
    for (script, code) in [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill $$", 143),
    ] {
        Running::script(&server, &[], script).end().exits(code);
    }
}

#[test]
fn command_not_executable_releases_lock() {
    let (server, mut client) = start();
    for (command, code) in [
        ("/does/not/exist", 127),
        ("does-not-exist", 127),
        ("/etc/passwd", 126),
    ] {
        at(&server, &["run", "job", "--", command])
            .exits(code)
            .warns(command);
        assert!(client.find_lock("job").is_none());
    }
}

#[test]
fn lock_not_acquired_exits_75_without_running_command() {
    let server = Server::start();
    server.client().acquire("job another 60000");
    for how in [&["--try"][..], &["--wait", "200ms"]] {
        Running::script(&server, how, "echo ran").end().fails(75, "job");
    }
    assert_eq!(server.client().waiting("job"), 0);
}

#[test]
fn grant_after_lease_expiry_counts_as_not_acquired() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.delay(Way::ToClient, Duration::from_millis(150));
    let options = ["--try", "--lease", "100ms"];
    Running::start(&mut script_at(proxy.port(), &options, "echo ran"))
        .end()
        .fails(75, "--try");
}

#[test]
fn request_in_flight_at_timeout_is_cancelled() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // Connecting takes most of the wait time, so the request arrives after it.
    proxy.delay(Way::ToServer, Duration::from_millis(400));
    let job = Running::start(&mut script_at(proxy.port(), &["--wait", "1400ms"], "echo ran"));
    job.end().exits(75).prints("");
    // By then a request in flight has arrived.
    pause(1500);
    assert!(server.client().find_lock("job").is_none());
}

#[test]
fn run_waits_without_limit_by_default() {
    let (server, mut client) = start();
    client.acquire("job another 60000");
    let mut job = Running::script(&server, &[], "echo ran");
    client.wait_for_queue("job", 1);
    client.release("job another");
    job.expect("ran");
    job.end().exits(0);
}

#[test]
fn shared_and_limited_locks_admit_several_holders() {
    let server = Server::start();
    for (options, count) in [(&["--shared", "--try"][..], 3), (&["--limit", "2", "--try"], 2)] {
        let ready = |_| Running::ready(&server, options, "cat");
        let holders: Vec<Running> = (0..count).map(ready).collect();
        Running::script(&server, &["--try"], "echo ran").end().exits(75);
        if options[0] == "--limit" {
            Running::script(&server, options, "echo ran").end().exits(75);
        }
        for holder in holders {
            holder.finish().exits(0);
        }
    }
}

#[test]
fn lease_is_renewed_while_command_runs() {
    let (server, mut client) = start();
    let mut job = Running::script(&server, &["--lease", "3s"], "echo $DLOCK_FENCE; cat");
    let fence = job.line();
    // By then the first lease has expired.
    wait_for("renewals", || client.stat("dlock_extended") >= 4);
    assert_eq!(client.lock("job").holders[0].fence.to_string(), fence);
    job.finish().exits(0);
}

#[test]
fn signals_are_forwarded_to_command() {
    let server = Server::start();
    let signals = [
        ("HUP", Signal::SIGHUP),
        ("INT", Signal::SIGINT),
        ("QUIT", Signal::SIGQUIT),
        ("TERM", Signal::SIGTERM),
        ("USR1", Signal::SIGUSR1),
        ("USR2", Signal::SIGUSR2),
    ];
    for (name, signal) in signals {
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; {WAIT}");
        let mut job = Running::script(&server, &[], &script);
        job.expect("ready");
        job.signal(signal);
        job.expect(&format!("got {name}"));
        job.end().exits(9);
    }
}

#[test]
fn signal_reaches_whole_process_group() {
    let server = Server::start();
    let mut job = Running::script(&server, &[], "sleep 1000 >&- 2>&- & echo $!; wait");
    let grandchild = job.line();
    assert!(is_running(&grandchild));
    job.signal(Signal::SIGTERM);
    job.end().exits(143);
    wait_for("the end of the grandchild", || !is_running(&grandchild));
}

#[test]
fn signal_while_waiting_cancels_request() {
    let (server, mut client) = start();
    client.acquire("job another 60000");
    let job = Running::script(&server, &[], "echo ran");
    client.wait_for_queue("job", 1);
    job.signal(Signal::SIGTERM);
    job.end().exits(143).prints("");
    assert_eq!(client.waiting("job"), 0);
}

#[test]
fn ignored_signal_stays_ignored() {
    let server = Server::start();
    let tool = script(
        "trap '' HUP; exec \"$0\" run job -- sh -c 'echo ready; cat'",
        &server,
    );
    let mut job = Running::start(&mut { tool });
    job.expect("ready");
    job.signal(Signal::SIGHUP);
    job.finish().exits(0);
}

#[test]
fn exit_code_is_known_with_sigchld_ignored() {
    let server = Server::start();
    let script = "sleep 0.2; exit 7";
    let tool = script_at(server.port(), &[], script);
    let mut command = Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(tool.get_program())
        .args(tool.get_args());
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    Running::start(&mut command).end().exits(7);
}

#[test]
fn grant_in_flight_at_signal_is_released() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = server.client();
    client.acquire("job another 60000");
    let job = Running::start(&mut script_at(proxy.port(), &[], "echo ran"));
    client.wait_for_queue("job", 1);
    proxy.delay(Way::ToClient, Duration::from_millis(300));
    proxy.delay(Way::ToServer, Duration::from_millis(300));
    client.release("job another");
    assert!(client.find_lock("job").is_some());
    job.signal(Signal::SIGTERM);
    job.end().exits(143);
    assert!(client.find_lock("job").is_none());
}

/// A shell script with the path of `dlock` in `$0`.
fn script(script: &str, server: &Server) -> Command {
    let tool = dlock_at(server, &[]);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(tool.get_program());
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", server.port()));
    command
}

#[test]
fn max_hold_ends_command() {
    let server = Server::start();
    let start = Instant::now();
    let job = Running::ready(&server, &["--max-hold", "3s"], "exec sleep 1000");
    job.end().exits(79);
    assert!(start.elapsed() < SLOW_MACHINE * 3);
    wait_until_free(&mut server.client(), "job");
}

#[test]
fn lease_above_server_limit_names_option() {
    let server = Server::with("dlock.max-lease-ms 10000");
    Running::script(&server, &["--lease", "10001ms"], "echo ran")
        .end()
        .fails(64, "--lease");
}

#[test]
fn default_lease_is_at_most_what_the_server_accepts() {
    let server = Server::with("dlock.max-lease-ms 10000");
    let job = Running::ready(&server, &[], "cat");
    let lock = json(&server, &["show", "job"]);
    assert!(
        lock["holders"][0]["lease_ms"].as_u64().expect("a number") <= 10_000,
        "{lock}"
    );
    job.finish().exits(0);
}

#[test]
fn busy_message_names_the_holder_and_quiet_suppresses_it() {
    let server = Server::start();
    server.client().acquire("job alice 60000");
    let run = |options: &[&str]| {
        let args = [&["run", "--try"], options, &["job", "echo", "ran"]].concat();
        at(&server, &args)
    };
    run(&[]).exits(75).warns("busy: held by alice for");
    run(&["--busy-code", "0"]).fails(0, "held by alice");
    let quiet = run(&["-q", "--busy-code", "9"]);
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (9, "", ""));
}

#[test]
fn at_least_keeps_lock_only_after_command_that_succeeded() {
    let server = Server::with("dlock.max-lease-ms 3600000");
    let mut client = server.client();
    for (script, code, is_kept) in [("exit 3", 3, false), ("exit 0", 0, true)] {
        let job = Running::script(&server, &["--at-least", "1h", "--lease", "10s"], script);
        job.end().exits(code);
        let lease_ms = client.find_lock("job").map(|lock| lock.holders[0].lease_ms);
        assert_eq!(lease_ms.is_some(), is_kept, "{script}");
        assert!(lease_ms.is_none_or(|ms| ms > 3_500_000), "{lease_ms:?}");
    }
}

#[test]
fn at_least_longer_than_the_longest_lease_is_refused_before_the_command_runs() {
    let server = Server::with("dlock.max-lease-ms 30000");
    let at_least = |time: &str| at(&server, &["run", "--at-least", time, "job", "echo", "ran"]);
    at_least("31s").fails(
        64,
        "--at-least: the server accepts leases of up to 30s (dlock.max-lease-ms)",
    );
    let kept = at_least("30s");
    assert_eq!((kept.code, kept.out.as_str()), (0, "ran\n"), "{kept:?}");
}

#[test]
fn broken_promise_of_at_least_is_no_success() {
    let server = Server::start();
    // Whoever has no permission for INFO learns the longest lease from the release.
    let mut client = server.client();
    client.ok("ACL SETUSER noinfo on >secret ~* +@all -info");
    client.config_set("dlock.max-lease-ms", "30000");
    let args = [
        "--user",
        "noinfo",
        "-a",
        "secret",
        "run",
        "--at-least",
        "5m",
        "job",
        "true",
    ];
    at(&server, &args).fails(69, "cannot keep job for 5m");
}

#[test]
fn command_needs_no_separator() {
    let server = Server::start();
    let run = at(&server, &["run", "job", "sh", "-c", "echo $1", "--", "--lease"]);
    assert_eq!((run.code, run.out.as_str()), (0, "--lease\n"), "{run:?}");
}

#[test]
fn killed_dlock_takes_its_command_along() {
    let server = Server::start();
    let mut job = Running::script(&server, &[], "echo $$; exec sleep 1000 >&- 2>&-");
    let command = job.line();
    job.signal(Signal::SIGKILL);
    wait_for("the command to be killed", || !is_running(&command));
}
