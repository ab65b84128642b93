//! `dlock drill`: four deployments that differ in their settings have different verdicts, and seeded faults are found.

use std::fs;
use std::time::Duration;

use crate::support::{Outcome, Running, at, dlock};
use dlock_testkit::{Cluster, Proxy, Sentinel, Server, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Leases of up to this long, and a grace period that covers them.
const LEASE_MS: u64 = 5_000;
const DURABLE: &str = "appendonly yes\nappendfsync always";
/// Of a drill that has not met what it should: on a busy machine, few locks change hands around a fault.
const ATTEMPTS: usize = 4;

/// A command of `--fault` that waits until the test has done the damage.
struct Hook(TempDir);

impl Hook {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn command(&self) -> String {
        let directory = self.0.path().display();
        format!("touch {directory}/begun; while [ ! -e {directory}/done ]; do sleep 0.05; done")
    }

    /// Does the damage when the command has begun.
    #[track_caller]
    fn inject(&self, damage: impl FnOnce()) {
        wait_for("the fault", || self.0.path().join("begun").exists());
        damage();
        fs::write(self.0.path().join("done"), "").expect("a temporary directory is writable");
    }
}

/// What `dlock drill --json` tells of a deployment that is damaged half way.
#[track_caller]
fn drill(url: &str, duration: &str, damage: impl FnOnce()) -> (Value, Outcome) {
    let hook = Hook::new();
    let lease = format!("{LEASE_MS}ms");
    let command = hook.command();
    let args = ["-u", url, "drill", "--yes-this-is-staging", "--json"];
    let options = ["--duration", duration, "--lease", &lease, "--fault", &command];
    let running = Running::start(&mut dlock(&[&args[..], &options].concat()));
    hook.inject(damage);
    let outcome = running.end();
    let report = serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    (report, outcome)
}

/// As [`drill`], until a guarantee is violated.
#[track_caller]
fn violated(mut drill: impl FnMut() -> (Value, Outcome)) -> Value {
    for _ in 1..ATTEMPTS {
        let (report, outcome) = drill();
        if report["verdict"] == "violated" {
            outcome.exits(2);
            return report;
        }
    }
    let (report, outcome) = drill();
    outcome.exits(2);
    report
}

fn number(report: &Value, field: &str) -> u64 {
    report[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field}: {report:#}"))
}

/// The settings that the findings after the fault name.
fn settings(report: &Value) -> Vec<&str> {
    let findings = report["phases"][1]["findings"].as_array().expect("an array");
    let settings = findings
        .iter()
        .flat_map(|finding| finding["settings"].as_array().expect("an array"));
    settings.map(|setting| setting.as_str().expect("text")).collect()
}

/// No lock is held. One whose lease has just expired is no longer, but the server removes it some tenths of a second later.
#[track_caller]
fn assert_clean(server: &Server) {
    let mut client = server.client();
    let keys: Vec<String> = client.ask("KEYS dlock-drill:*");
    let held: Vec<_> = keys.iter().filter_map(|key| client.find_lock(key)).collect();
    assert_eq!((held.len(), client.stat("dlock_waiters")), (0, 0), "{held:?}");
}

#[test]
fn server_without_persistence_forgets_locks_when_it_is_restarted() {
    let report = violated(|| {
        let mut server = Server::start();
        let drilled = drill(&server.url(), "8s", || server.crash_and_restart());
        assert_clean(&server);
        drilled
    });
    assert!(number(&report, "overlaps") > 0, "{report:#}");
    assert_eq!(number(&report["phases"][0], "overlaps"), 0, "{report:#}");
    assert_eq!(report["phases"][1]["seen_as"], "restart", "{report:#}");
    let settings = settings(&report);
    assert!(settings.contains(&"appendonly"), "{report:#}");
    assert!(settings.contains(&"dlock.startup-grace-ms"), "{report:#}");
}

#[test]
fn server_with_appendfsync_always_forgets_nothing() {
    let mut server = Server::with(DURABLE);
    let (report, outcome) = drill(&server.url(), "10s", || server.crash_and_restart());
    outcome.exits(0);
    assert_clean(&server);
    assert_eq!(report["verdict"], "ok", "{report:#}");
    assert_eq!(report["phases"][1]["seen_as"], "restart", "{report:#}");
    for count in [
        "overlaps",
        "fences_not_rising",
        "locks_lost",
        "waiters_lost",
        "waiters_passed",
    ] {
        assert_eq!(number(&report, count), 0, "{report:#}");
    }
    assert!(number(&report, "acquisitions") > 20, "{report:#}");
}

/// A primary is killed whose last grants are not replicated, and a Sentinel promotes the replica.
#[track_caller]
fn unplanned_failover(grace_ms: u64) -> (Value, Outcome) {
    let lines = format!("{DURABLE}\ndlock.failover-grace-ms {grace_ms}");
    let mut primary = Server::with(&lines);
    let replica = primary.replica_with(&format!("{lines}\nreplica-read-only no"));
    let down_after = "sentinel down-after-milliseconds main 1000";
    let sentinel = Sentinel::start(primary.port(), 1, down_after);
    let url = format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port());
    let drilled = drill(&url, "24s", || {
        // As if it had received nothing.
        replica.client().ok("FLUSHALL");
        primary.kill();
        wait_for("the promotion", || replica.is_primary());
    });
    assert_clean(&replica);
    drilled
}

#[test]
fn failover_without_grace_lets_locks_have_two_holders() {
    let report = violated(|| unplanned_failover(0));
    assert!(number(&report, "overlaps") > 0, "{report:#}");
    assert_eq!(report["phases"][1]["seen_as"], "failover", "{report:#}");
    assert!(
        settings(&report).contains(&"dlock.failover-grace-ms"),
        "{report:#}"
    );
    assert!(!settings(&report).contains(&"appendonly"), "{report:#}");
}

#[test]
fn failover_with_grace_has_a_pause_and_no_two_holders() {
    let (report, outcome) = unplanned_failover(LEASE_MS);
    assert_ne!(outcome.code, 2, "{report:#}");
    assert_eq!(number(&report, "overlaps"), 0, "{report:#}");
    assert_eq!(number(&report, "fences_not_rising"), 0, "{report:#}");
    assert_eq!(report["phases"][1]["seen_as"], "failover", "{report:#}");
    assert!(
        number(&report["phases"][1], "longest_pause_ms") >= LEASE_MS,
        "{report:#}"
    );
    let settings = settings(&report);
    assert!(settings.contains(&"dlock.failover-grace-ms"), "{report:#}");
    assert!(settings.contains(&"down-after-milliseconds"), "{report:#}");
}

#[test]
fn old_primary_that_goes_on_is_found() {
    let report = violated(|| {
        let primary = Server::start();
        let replica = primary.replica();
        // An address that moves, as that of a load balancer.
        let address = Proxy::to(primary.port());
        let drilled = drill(&address.url(), "10s", || {
            replica.client().ok("REPLICAOF NO ONE");
            address.forward_to(replica.port());
            disconnect_every_second_client(&primary);
        });
        assert_clean(&replica);
        drilled
    });
    assert!(number(&report, "overlaps") > 0, "{report:#}");
    assert_eq!(report["phases"][1]["seen_as"], "two primaries", "{report:#}");
    assert!(settings(&report).contains(&"min-replicas-to-write"), "{report:#}");
}

/// A drill of two seconds.
const SHORT: [&str; 6] = [
    "drill",
    "--yes-this-is-staging",
    "--duration",
    "2s",
    "--lease",
    "1s",
];

fn disconnect_every_second_client(server: &Server) {
    let mut client = server.client();
    let list: String = client.ask("CLIENT LIST TYPE normal");
    let ids = list
        .lines()
        .filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
    for id in ids.step_by(2) {
        // It may be gone, or be this connection.
        let _ = client.call(&format!("CLIENT KILL ID {id}"));
    }
}

#[test]
fn drill_without_faults_says_what_was_not_tried() {
    let server = Server::with(DURABLE);
    at(&server, &SHORT)
        .exits(0)
        .shows("Not tried\n  a crash and restart of a server\n  a failover\n")
        .shows("ok: no violation was found, which is no proof");
    assert_clean(&server);
}

#[test]
fn drill_runs_in_a_cluster() {
    let cluster = Cluster::start(2);
    let args = [
        "drill",
        "--yes-this-is-staging",
        "--duration",
        "3s",
        "--lease",
        "1s",
    ];
    let report = crate::support::json(&cluster.nodes[0], &args);
    assert_eq!(report["verdict"], "ok", "{report:#}");
    cluster.nodes.iter().for_each(assert_clean);
}

#[test]
fn drill_writes_its_history_for_other_checkers() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("history.json");
    let args = ["-u", &server.url(), "drill", "--yes-this-is-staging"];
    let options = [
        "--duration",
        "1s",
        "--lease",
        "1s",
        "--history",
        path.to_str().expect("text"),
    ];
    let _ = Running::start(&mut dlock(&[&args[..], &options].concat())).end();
    let text = fs::read_to_string(&path).expect("the history is written");
    let history: Vec<Value> = serde_json::from_str(&text).expect("the history is JSON");
    let granted = history.iter().filter(|op| op["reply"]["granted"].is_u64());
    assert!(granted.count() > 0, "{text}");
    assert!(
        history.iter().any(|op| op["request"]["command"] == "RELEASE"),
        "{text}"
    );
}

#[test]
fn drill_needs_a_confirmation_before_it_connects() {
    let args = ["-p", "1", "drill", "--fault", "true"];
    crate::support::tool(&args).fails(64, "add --yes-this-is-staging if this deployment may fail");
}

#[test]
fn lease_that_the_server_rejects_is_an_error() {
    let server = Server::with("dlock.max-lease-ms 2000");
    let args = ["drill", "--yes-this-is-staging", "--lease", "3s"];
    at(&server, &args).fails(64, "the server accepts leases of up to 2.0s");
}

#[test]
fn failed_command_is_shown_and_makes_the_drill_inconclusive() {
    let server = Server::with(DURABLE);
    let fault = ["--fault", "echo no such host; exit 3"];
    at(&server, &[&SHORT[..], &fault].concat())
        .exits(1)
        .warns("exit code 3\nno such host")
        .shows("inconclusive");
}

#[test]
fn interrupted_drill_leaves_nothing() {
    let server = Server::with(DURABLE);
    let mut client = server.client();
    let url = server.url();
    let args = ["-u", &url, "drill", "--yes-this-is-staging", "--lease", "2s"];
    let running = Running::start(&mut dlock(&args));
    wait_for("a held lock", || client.stat("dlock_locks") > 2);
    running.signal(Signal::SIGINT);
    running.end().exits(130).shows("it was interrupted");
    assert_clean(&server);
}

#[test]
fn command_that_does_not_end_is_killed() {
    let server = Server::with(DURABLE);
    let start = std::time::Instant::now();
    at(&server, &[&SHORT[..], &["--fault", "sleep 600"]].concat())
        .exits(1)
        .warns("it did not end, and was killed");
    dlock_testkit::assert_elapsed_at_most(Duration::from_secs(40), start);
}
