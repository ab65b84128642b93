//! Error messages and exit codes.

use std::process::Stdio;

use crate::support::terminal::Terminal;
use crate::support::{Outcome, at, dlock_at, on, outcome, tool};
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

const REFUSED: &str =
    "cannot connect to 127.0.0.1:1: Connection refused (os error 111): is the server running?";

/// One line of error, and nothing else.
#[track_caller]
fn fails(outcome: Outcome, code: i32, says: &str) {
    let failed = outcome.fails(code, says);
    assert!(
        failed.err.starts_with("dlock: ") && failed.err.lines().count() == 1,
        "{failed:?}"
    );
}

#[test]
fn unreachable_server_exits_69() {
    for args in ALL {
        fails(on(1, args), 69, REFUSED);
        let unknown = tool(&[&["-h", "does-not-exist.invalid"], args].concat());
        fails(unknown, 69, "does-not-exist.invalid");
    }
}

#[test]
fn server_without_module_exits_69() {
    let server = Server::without_module("");
    for args in ALL {
        let ended = at(&server, args);
        match args[0] {
            "doctor" => {
                assert_eq!(ended.code, 2, "{ended:?}");
                assert!(ended.out.contains("PROBLEM  module"), "{ended:?}");
            }
            _ => fails(ended, 69, "loadmodule"),
        }
    }
}

#[test]
fn server_with_too_many_clients_exits_69() {
    let (server, mut client) = start();
    client.config_set("maxclients", "1");
    for args in ALL {
        let says = "max number of clients reached";
        fails(at(&server, args), 69, says);
        fails(
            at(&server, &[&["-n", "1", "-a", "secret"], args].concat()),
            69,
            says,
        );
    }
}

#[test]
fn missing_or_wrong_password_exits_77() {
    let server = Server::start();
    server.client().config_set("requirepass", "secret");
    for args in ALL {
        fails(at(&server, args), 77, "password");
        let wrong = outcome(dlock_at(&server, args).env("REDISCLI_AUTH", "wrong"));
        fails(wrong, 77, "password");
    }
    outcome(dlock_at(&server, &["ls"]).env("REDISCLI_AUTH", "secret")).exits(0);
    at(&server, &["-a", "secret", "ls"]).exits(0);
}

#[test]
fn denied_command_exits_77() {
    let (server, mut client) = start();
    client.ok("ACL SETUSER app on >secret ~* -@all +dlock.acquire +dlock.release +dlock.extend");
    let as_app = |args: &[&str]| at(&server, &[&["--user", "app", "-a", "secret"], args].concat());
    // The documented permissions of applications suffice.
    as_app(&["run", "job", "--", "sh", "-c", "exit 3"]).exits(3);
    for args in [&["ls"][..], &["show", "job"], &["stats"]] {
        fails(as_app(args), 77, "permission denied: NOPERM ");
    }
    as_app(&["doctor"]).exits(1).shows("no permission for INFO");
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
        fails(at(&server, args), 65, "not a lock");
    }
    assert!(server.client().exists("job"));
}

#[test]
fn run_on_replica_exits_69() {
    let server = Server::start();
    let replica = server.replica();
    let args = ["run", "job", "--", "echo", "ran"];
    fails(at(&replica, &args), 69, "replica");
}

#[test]
fn cluster_node_without_slots_exits_69() {
    let node = Server::cluster_node();
    let args = ["run", "job", "--", "echo", "ran"];
    fails(at(&node, &args), 69, "serves no slots");
    let args = ["show", "job"];
    fails(at(&node, &args), 69, "no node of the cluster");
    at(&node, &["doctor"])
        .exits(2)
        .shows("PROBLEM  cluster: state fail, 0 of 16384");
    at(&node, &["ls"]).exits(0);
}

#[test]
fn evicting_server_exits_69_not_75() {
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let args = ["run", "job", "--", "echo", "ran"];
    fails(at(&server, &args), 69, "evict");
}

#[test]
fn invalid_command_line_exits_64() {
    let lines: [&[&str]; 13] = [
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
        &["run", "--wait", "0", "job", "--", "true"],
        &["-u", "http://localhost", "ls"],
        &["--cacert", "/does/not/exist", "ls"],
    ];
    for line in lines {
        let refused = tool(line).exits(64);
        assert!(!refused.err.is_empty(), "{line:?}");
    }
    for line in [["--help"], ["--version"]] {
        tool(&line).exits(0);
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
