//! `dlock doctor`.

use crate::support::{Outcome, at, tool};
use dlock_testkit::{Cluster, Sentinel, Server, start_with, wait_for};

/// Exit code, and check and level of all findings.
fn findings(server: &Server) -> (i32, Vec<(String, String)>) {
    let output = at(server, &["doctor", "--json"]);
    let json: serde_json::Value =
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let text = |finding: &serde_json::Value, field: &str| finding[field].as_str().expect("text").to_owned();
    let findings = json.as_array().expect("an array").iter();
    (
        output.code,
        findings
            .map(|finding| (text(finding, "check"), text(finding, "level")))
            .collect(),
    )
}

/// Exit code, and the checks with findings of this level.
fn at_level(server: &Server, level: &str) -> (i32, String) {
    let (code, findings) = findings(server);
    let found = findings.into_iter().filter(|finding| finding.1 == level);
    let checks: Vec<String> = found.map(|finding| finding.0).collect();
    (code, checks.join(", "))
}

fn expected(code: i32, checks: &str) -> (i32, String) {
    (code, checks.to_owned())
}

/// What the doctor says of the primary of a Sentinel.
fn at_sentinel(sentinel: &Sentinel) -> Outcome {
    let url = format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port());
    tool(&["-u", &url, "doctor"])
}

const DURABLE: &str = "appendonly yes\nappendfsync always";

#[test]
fn doctor_changes_no_data_and_no_counter() {
    let (server, mut client) = start_with(DURABLE);
    client.acquire("job alice 600000");
    let digest: String = client.ask("DEBUG DIGEST");
    let counters = client.info_section("dlock");
    findings(&server);
    assert_eq!(client.ask::<String>("DEBUG DIGEST"), digest);
    assert_eq!(client.info_section("dlock"), counters);
}

#[test]
fn missing_persistence_is_a_problem_without_startup_grace() {
    let server = Server::start();
    assert_eq!(at_level(&server, "problem"), expected(2, "persistence"));
    let mut client = server.client();
    client.config_set("dlock.max-lease-ms", "60000");
    client.config_set("dlock.startup-grace-ms", "60000");
    assert_eq!(at_level(&server, "problem"), expected(0, ""));
    client.config_set("dlock.startup-grace-ms", "30000");
    assert_eq!(at_level(&server, "warning"), expected(1, "startup grace"));
    client.config_set("dlock.max-lease-ms", "30000");
    assert_eq!(at_level(&server, "warning"), expected(0, ""));
    client.config_set("dlock.max-lease-ms", "60000");
    client.acquire("job alice 60000");
    client.config_set("dlock.max-lease-ms", "30000");
    assert_eq!(at_level(&server, "warning"), expected(1, "startup grace"));
}

#[test]
fn replicas_are_checked_with_their_primary() {
    let durable = format!("{DURABLE}\ndlock.max-lease-ms 30000");
    let server = Server::with(&durable);
    let replica = server.replica_with(&durable);
    let warnings = expected(1, "isolated primary, failover grace, failover grace");
    assert_eq!(at_level(&server, "warning"), warnings);
    let mut client = server.client();
    client.config_set("min-replicas-to-write", "1");
    client.config_set("min-replicas-max-lag", "3");
    client.config_set("dlock.failover-grace-ms", "30000");
    // After a promotion, the replica uses its own settings.
    let warnings = expected(1, "failover grace, settings differ");
    // The server counts its good replicas once a second: until then it rejects writes.
    wait_for("a good replica", || at_level(&server, "warning") == warnings);
    replica.client().config_set("dlock.failover-grace-ms", "30000");
    replica.client().config_set("min-replicas-to-write", "1");
    wait_for("equal settings", || {
        at_level(&server, "warning") == expected(0, "")
    });
    drop(replica);
    let gone = || at_level(&server, "problem") == expected(2, "replicas");
    wait_for("the end of the replica to be noticed", gone);
}

#[test]
fn missing_permissions_are_named() {
    let server = Server::with(DURABLE);
    server
        .client()
        .ok("ACL SETUSER app on >secret ~* +@all -dlock.extend");
    at(&server, &["--user", "app", "-a", "secret", "doctor"])
        .exits(2)
        .shows("no permission for DLOCK.EXTEND\n");
}

#[test]
fn cluster_nodes_are_checked_one_by_one() {
    let mut cluster = Cluster::start(2);
    let (_, findings) = findings(&cluster.nodes[0]);
    let good: Vec<_> = findings.iter().filter(|finding| finding.0 == "cluster").collect();
    assert_eq!(good.len(), 2, "{findings:?}");
    assert!(good.iter().all(|finding| finding.1 == "ok"), "{findings:?}");
    cluster.client(0).ask::<redis::Value>("CLUSTER DELSLOTS 1");
    at(&cluster.nodes[0], &["doctor"])
        .exits(2)
        .shows("16383 of 16384");
    cluster.nodes[1].kill();
    let output = at(&cluster.nodes[0], &["doctor"]).exits(2);
    let lost = format!("cannot connect to 127.0.0.1:{}", cluster.nodes[1].port());
    assert!(output.out.contains(&lost), "{output:?}");
}

#[test]
fn replica_without_module_is_a_problem() {
    let server = Server::with(DURABLE);
    let replica = Server::without_module(&format!("replicaof 127.0.0.1 {}\n{DURABLE}", server.port()));
    replica.wait_until_linked();
    assert_eq!(at_level(&server, "problem"), expected(2, "module"));
}

#[test]
fn disconnected_replica_is_reported() {
    let mut server = Server::with(DURABLE);
    let replica = server.replica_with(DURABLE);
    server.kill();
    let noticed = || at_level(&replica, "warning").1.contains("role");
    wait_for("the end of the link to be noticed", noticed);
}

#[test]
fn skipped_checks_name_the_denied_command() {
    let server = Server::with(DURABLE);
    for (right, command) in [("time", "TIME"), ("module|list", "MODULE LIST"), ("scan", "SCAN")] {
        let mut client = server.client();
        client.ok("ACL SETUSER app on >secret ~* +@all");
        client.ok(&format!("ACL SETUSER app -{right}"));
        at(&server, &["--user", "app", "-a", "secret", "doctor"])
            .exits(1)
            .shows(&format!("no permission for {command}\n"));
    }
    let cluster = Cluster::start(1);
    cluster
        .client(0)
        .ok("ACL SETUSER app on >secret ~* +@all -cluster|info");
    at(&cluster.nodes[0], &["--user", "app", "-a", "secret", "doctor"])
        .shows("no permission for CLUSTER INFO\n");
}

#[test]
fn documented_doctor_user_has_all_permissions() {
    let page = include_str!("../../../docs/operations.md");
    let line = page
        .lines()
        .find_map(|line| line.split_once("> ACL SETUSER doctor "));
    let (_, rights) = line.expect("the page makes the user");
    let server = Server::with(DURABLE);
    server.client().ok(&format!("ACL SETUSER doctor {rights}"));
    server.client().acquire("lock:42 alice 60000");
    let login = ["--user", "doctor", "-a", "doctor-secret", "doctor"];
    at(&server, &login).exits(0);
    let cluster = Cluster::start(2);
    for node in &cluster.nodes {
        node.client().ok(&format!("ACL SETUSER doctor {rights}"));
    }
    at(&cluster.nodes[0], &login).hides("no permission");
}

#[test]
fn failed_sentinels_and_replicas_are_reported() {
    let primary = Server::with(DURABLE);
    let replica = primary.replica();
    let sentinel = Sentinel::of(&primary, 1);
    let url = format!("redis-sentinel://127.0.0.1:1,127.0.0.1:{}/main", sentinel.port());
    let doctor = || tool(&["-u", &url, "doctor"]).out;
    let output = doctor();
    assert!(
        output.contains("127.0.0.1:1 (Sentinel)\n  warning  reachability"),
        "{output}"
    );
    assert!(output.contains("ok       quorum"), "{output}");
    assert!(output.contains("warning  sentinels: only 1"), "{output}");
    drop(replica);
    wait_for("the Sentinel to notice the failed replica", || {
        doctor().contains("warning  replicas known to Sentinel: 1 of 1 down")
    });
}

#[test]
fn dead_primary_is_a_problem_beside_what_sentinels_report() {
    let mut primary = Server::with(DURABLE);
    let sentinel = Sentinel::of(&primary, 0);
    primary.kill();
    at_sentinel(&sentinel)
        .exits(2)
        .shows("(Sentinel)")
        .shows("PROBLEM  reachability");
}

#[test]
fn what_sentinels_wait_for_and_replicas_without_their_primary_are_reported() {
    let primary = Server::with(DURABLE);
    let _replica = primary.replica();
    let sentinel = Sentinel::of(&primary, 1);
    let mut client = primary.client();
    client.config_set("min-replicas-to-write", "1");
    client.config_set("min-replicas-max-lag", "8");
    at_sentinel(&sentinel)
        .shows("min-replicas-max-lag is 8 s, and Sentinel considers a primary down after 2000 ms");
    let is_told = || {
        let known = "warning  replicas known to Sentinel: 1 of 1 down or not connected to the primary";
        at_sentinel(&sentinel).out.contains(known)
    };
    wait_for("the Sentinel to see the link", || !is_told());
    client.ok("ACL SETUSER default -psync -sync");
    client.call("CLIENT KILL TYPE replica").unwrap();
    wait_for("the Sentinel to miss the link", is_told);
}

#[test]
fn doctor_of_a_quorum_checks_servers_and_majority() {
    let mut servers: Vec<Server> = (0..3)
        .map(|_| Server::with(&format!("{DURABLE}\ndlock.quorum yes")))
        .collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let doctor = || {
        let urls = urls.iter().map(String::as_str);
        tool(&std::iter::once("doctor").chain(urls).collect::<Vec<_>>())
    };
    doctor()
        .exits(0)
        .shows("majority: 3 of 3 servers can grant locks");
    servers[0].client().config_set("dlock.quorum", "no");
    doctor().exits(2).shows("PROBLEM  quorum: dlock.quorum is no");
    servers[0].kill();
    doctor()
        .exits(1)
        .shows("majority: 2 of 3 servers can grant locks");
    servers[1].kill();
    doctor()
        .exits(2)
        .shows("PROBLEM  majority: 1 of 3 servers can grant locks");
    tool(&["-p", "1", "doctor", &urls[2]]).exits(64);
}
