//! Error messages and exit codes.

use std::process::Stdio;

use crate::support::terminal::Terminal;
use crate::support::{Outcome, dlock, dlock_at, dlock_on, outcome};
use dlock_testkit::{Server, start};

/// All commands that use a server.
const ALL: [&[&str]; 6] = [
    &["run", "job", "--", "echo", "ran"],
    &["ls"],
    &["show", "job"],
    &["break", "--yes", "job"],
    &["doctor"],
    &["stats"],
];

#[track_caller]
fn fails(args: &[&str], outcome: &Outcome, code: i32, says: &str) {
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (code, ""),
        "{args:?}: {outcome:?}"
    );
    assert!(
        outcome.err.starts_with("dlock: ") && outcome.err.contains(says),
        "{args:?}: {outcome:?}"
    );
    assert_eq!(outcome.err.lines().count(), 1, "{args:?}: {outcome:?}");
}

#[test]
fn unreachable_server_exits_69() {
    for args in ALL {
        fails(
            args,
            &outcome(&mut dlock_on(1, args)),
            69,
            "cannot connect to 127.0.0.1:1",
        );
        let unknown = outcome(&mut dlock(&[&["-h", "does-not-exist.invalid"], args].concat()));
        fails(args, &unknown, 69, "does-not-exist.invalid");
    }
}

#[test]
fn server_without_module_exits_69() {
    let server = Server::without_module("");
    for args in ALL {
        let ended = outcome(&mut dlock_at(&server, args));
        match args[0] {
            "doctor" => {
                assert_eq!(ended.code, 2, "{ended:?}");
                assert!(ended.out.contains("PROBLEM  module"), "{ended:?}");
            }
            _ => fails(args, &ended, 69, "loadmodule"),
        }
    }
}

#[test]
fn missing_or_wrong_password_exits_77() {
    let server = Server::start();
    server.client().config_set("requirepass", "secret");
    for args in ALL {
        fails(args, &outcome(&mut dlock_at(&server, args)), 77, "password");
        let wrong = outcome(dlock_at(&server, args).env("REDISCLI_AUTH", "wrong"));
        fails(args, &wrong, 77, "password");
    }
    let right = outcome(dlock_at(&server, &["ls"]).env("REDISCLI_AUTH", "secret"));
    assert_eq!(right.code, 0, "{right:?}");
    assert_eq!(outcome(&mut dlock_at(&server, &["-a", "secret", "ls"])).code, 0);
}

#[test]
fn denied_command_exits_77() {
    let (server, mut client) = start();
    client.ok("ACL SETUSER app on >secret ~* -@all +dlock.acquire +dlock.release +dlock.extend");
    let as_app = |args: &[&str]| {
        outcome(&mut dlock_at(
            &server,
            &[&["--user", "app", "-a", "secret"], args].concat(),
        ))
    };
    // The documented permissions of applications suffice.
    let run = as_app(&["run", "job", "--", "sh", "-c", "exit 3"]);
    assert_eq!(run.code, 3, "{run:?}");
    for args in [&["ls"][..], &["show", "job"], &["stats"]] {
        fails(args, &as_app(args), 77, "permission denied");
    }
    let checked = as_app(&["doctor"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains("no permission for INFO"), "{checked:?}");
}

#[test]
fn key_of_another_type_exits_65() {
    let server = Server::start();
    server.client().ok("SET job text");
    for args in [
        &["run", "job", "--", "echo", "ran"][..],
        &["show", "job"],
        &["break", "--yes", "job"],
    ] {
        fails(args, &outcome(&mut dlock_at(&server, args)), 65, "not a lock");
    }
    assert!(server.client().exists("job"));
}

#[test]
fn run_on_replica_exits_69() {
    let server = Server::start();
    let replica = server.replica();
    let args = ["run", "job", "--", "echo", "ran"];
    fails(&args, &outcome(&mut dlock_at(&replica, &args)), 69, "replica");
}

#[test]
fn cluster_node_without_slots_exits_69() {
    let node = Server::cluster_node();
    let args = ["run", "job", "--", "echo", "ran"];
    fails(
        &args,
        &outcome(&mut dlock_at(&node, &args)),
        69,
        "serves no slots",
    );
    let args = ["show", "job"];
    fails(
        &args,
        &outcome(&mut dlock_at(&node, &args)),
        69,
        "no node of the cluster",
    );
    let checked = outcome(&mut dlock_at(&node, &["doctor"]));
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.out.contains("PROBLEM  cluster: state fail, 0 of 16384"),
        "{checked:?}"
    );
    assert_eq!(outcome(&mut dlock_at(&node, &["ls"])).code, 0);
}

#[test]
fn evicting_server_exits_69_not_75() {
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let args = ["run", "job", "--", "echo", "ran"];
    fails(&args, &outcome(&mut dlock_at(&server, &args)), 69, "evict");
}

#[test]
fn invalid_command_line_exits_64() {
    let lines: [&[&str]; 12] = [
        &["run", "", "true"],
        &["run", "--lease", "99ms", "job", "true"],
        &[],
        &["nonsense"],
        &["run", "job"],
        &["run", "job", "--"],
        &["run", "--lease", "soon", "job", "--", "true"],
        &["run", "--limit", "0", "job", "--", "true"],
        &["run", "--shared", "--limit", "2", "job", "--", "true"],
        &["run", "--try", "--wait", "1s", "job", "--", "true"],
        &["-u", "http://localhost", "ls"],
        &["--cacert", "/does/not/exist", "ls"],
    ];
    for line in lines {
        let refused = outcome(&mut dlock(line));
        assert_eq!(refused.code, 64, "{line:?}: {refused:?}");
        assert!(!refused.err.is_empty(), "{line:?}");
    }
    for line in [["--help"], ["--version"]] {
        assert_eq!(outcome(&mut dlock(&line)).code, 0);
    }
}

#[test]
fn closed_output_pipe_exits_74() {
    let server = Server::start();
    for n in 0..2000 {
        server.client().acquire(&format!("job:{n} alice 600000"));
    }
    for args in [
        &["ls"][..],
        &["ls", "--json"],
        &["stats"],
        &["doctor"],
        &["completions", "bash"],
    ] {
        let mut command = dlock_at(&server, args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
        assert_eq!(ended.status.code(), Some(74), "{args:?}");
    }
}

#[test]
fn narrow_terminal_shows_complete_output() {
    let server = Server::start();
    server
        .client()
        .acquire("a-lock-with-quite-a-long-name alice 600000");
    for args in [
        &["ls"][..],
        &["show", "a-lock-with-quite-a-long-name"],
        &["stats"],
        &["--help"],
    ] {
        let (code, screen) = Terminal::start(&dlock_at(&server, args), 60, 12).end();
        assert_eq!(code, 0, "{args:?}:\n{screen}");
        assert!(!screen.contains("panicked"), "{screen}");
    }
}
