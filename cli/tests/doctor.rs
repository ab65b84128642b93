//! `dlock doctor` on real deployments, good and bad.

mod support;

use dlock_testkit::{Cluster, Server};
use support::{dlock_at, outcome};

/// The level of each check, of all servers.
fn findings(server: &Server) -> (i32, Vec<(String, String)>) {
    let told = outcome(&mut dlock_at(server, &["doctor", "--json"]));
    let json: serde_json::Value =
        serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    let text = |finding: &serde_json::Value, field: &str| finding[field].as_str().expect("text").to_owned();
    let findings = json.as_array().expect("an array").iter();
    (
        told.code,
        findings
            .map(|finding| (text(finding, "check"), text(finding, "level")))
            .collect(),
    )
}

/// The checks that find this level.
fn at_level(server: &Server, level: &str) -> (i32, Vec<String>) {
    let (code, findings) = findings(server);
    (
        code,
        findings
            .into_iter()
            .filter(|finding| finding.1 == level)
            .map(|finding| finding.0)
            .collect(),
    )
}

const DURABLE: &str = "appendonly yes\nappendfsync always";

#[test]
fn a_good_server_is_found_good() {
    let server = Server::with(DURABLE);
    let told = outcome(&mut dlock_at(&server, &["doctor"]));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.contains("0 problems, 0 warnings"), "{told:?}");
}

#[test]
fn checking_changes_nothing() {
    let server = Server::with(DURABLE);
    let mut client = server.client();
    client.acquire("job alice 600000");
    let digest: String = client.ask("DEBUG DIGEST");
    findings(&server);
    assert_eq!(client.ask::<String>("DEBUG DIGEST"), digest);
    assert_eq!(
        (client.stat("dlock_acquired"), client.stat("dlock_released")),
        (1, 0)
    );
}

#[test]
fn a_server_without_persistence_is_a_problem_until_it_has_a_grace() {
    let server = Server::start();
    assert_eq!(at_level(&server, "problem"), (2, vec!["persistence".to_owned()]));
    server.client().config_set("dlock.startup-grace-ms", "30000");
    assert_eq!(at_level(&server, "problem"), (0, vec![]));
    server.client().acquire("job alice 3600000");
    assert_eq!(
        at_level(&server, "warning"),
        (1, vec!["startup grace".to_owned()])
    );
}

#[test]
fn eviction_timers_and_a_running_grace_are_noticed() {
    let server = Server::with(&format!("{DURABLE}\nhz 5\ndlock.startup-grace-ms 600000"));
    assert_eq!(
        at_level(&server, "warning"),
        (1, vec!["grace".to_owned(), "timers".to_owned()])
    );
    let mut client = server.client();
    client.config_set("maxmemory", "100mb");
    client.config_set("maxmemory-policy", "allkeys-random");
    assert_eq!(at_level(&server, "problem"), (2, vec!["eviction".to_owned()]));
}

#[test]
fn a_primary_and_its_replicas_are_checked_together() {
    let server = Server::with(DURABLE);
    let replica = server.replica_with(DURABLE);
    let (code, warnings) = at_level(&server, "warning");
    assert_eq!(
        (code, warnings),
        (
            1,
            ["isolated primary", "failover grace", "failover grace"]
                .map(str::to_owned)
                .into()
        )
    );
    let mut client = server.client();
    client.config_set("min-replicas-to-write", "1");
    client.config_set("min-replicas-max-lag", "3");
    client.config_set("dlock.failover-grace-ms", "30000");
    // The replica goes by its own setting when it is promoted.
    assert_eq!(
        at_level(&server, "warning"),
        (1, vec!["failover grace".to_owned()])
    );
    replica.client().config_set("dlock.failover-grace-ms", "30000");
    assert_eq!(at_level(&server, "warning"), (0, vec![]));
    drop(replica);
    let gone = || at_level(&server, "problem") == (2, vec!["replicas".to_owned()]);
    dlock_testkit::wait_for("the end of the replica to be noticed", gone);
}

#[test]
fn a_user_without_rights_is_told_which_ones() {
    let server = Server::with(DURABLE);
    server
        .client()
        .ok("ACL SETUSER app on >secret ~* +@all -dlock.extend");
    let told = outcome(&mut dlock_at(
        &server,
        &["--user", "app", "-a", "secret", "doctor"],
    ));
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.out.contains("may not use DLOCK.EXTEND\n"), "{told:?}");
}

#[test]
fn a_cluster_is_checked_node_by_node() {
    let mut cluster = Cluster::start(2);
    let (_, findings) = findings(&cluster.nodes[0]);
    let good: Vec<_> = findings.iter().filter(|finding| finding.0 == "cluster").collect();
    assert_eq!(good.len(), 2, "{findings:?}");
    assert!(good.iter().all(|finding| finding.1 == "good"), "{findings:?}");
    cluster.client(0).ask::<redis::Value>("CLUSTER DELSLOTS 1");
    let told = outcome(&mut dlock_at(&cluster.nodes[0], &["doctor"]));
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.out.contains("16383 of 16384"), "{told:?}");
    cluster.nodes[1].kill();
    let told = outcome(&mut dlock_at(&cluster.nodes[0], &["doctor"]));
    assert_eq!(told.code, 2, "{told:?}");
    let lost = format!("cannot reach the server at 127.0.0.1:{}", cluster.nodes[1].port());
    assert!(told.out.contains(&lost), "{told:?}");
}

#[test]
fn a_replica_without_the_module_is_a_problem() {
    let server = Server::with(DURABLE);
    let replica = Server::without_module(&format!("replicaof 127.0.0.1 {}\n{DURABLE}", server.port()));
    replica.wait_until_linked();
    assert_eq!(at_level(&server, "problem"), (2, vec!["module".to_owned()]));
}

#[test]
fn snapshots_alone_and_a_log_that_lags_are_told_apart() {
    let server = Server::with("save 3600 1");
    assert_eq!(at_level(&server, "problem"), (2, vec!["persistence".to_owned()]));
    let lagging = Server::with("appendonly yes\nappendfsync everysec");
    assert_eq!(at_level(&lagging, "warning"), (1, vec!["persistence".to_owned()]));
}

#[test]
fn a_grace_without_bound_is_noticed() {
    let server = Server::with(&format!("{DURABLE}\ndlock.failover-grace-ms -1"));
    assert_eq!(
        at_level(&server, "warning"),
        (1, vec!["longest lease".to_owned()])
    );
    server.client().config_set("dlock.max-lease-ms", "30000");
    assert_eq!(at_level(&server, "warning"), (0, vec![]));
}

#[test]
fn a_replica_that_is_cut_off_is_noticed() {
    let mut server = Server::with(DURABLE);
    let replica = server.replica_with(DURABLE);
    server.kill();
    let noticed = || at_level(&replica, "warning").1.contains(&"role".to_owned());
    dlock_testkit::wait_for("the end of the link to be noticed", noticed);
}

#[test]
fn what_the_user_may_not_ask_for_is_told_not_to_be_checked() {
    let server = Server::with(DURABLE);
    for (right, command) in [("time", "TIME"), ("module|list", "MODULE LIST"), ("scan", "SCAN")] {
        let mut client = server.client();
        client.ok("ACL SETUSER app on >secret ~* +@all");
        client.ok(&format!("ACL SETUSER app -{right}"));
        let told = outcome(&mut dlock_at(
            &server,
            &["--user", "app", "-a", "secret", "doctor"],
        ));
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.out.contains(&format!("may not use {command}\n")), "{told:?}");
    }
    let cluster = Cluster::start(1);
    cluster
        .client(0)
        .ok("ACL SETUSER app on >secret ~* +@all -cluster|info");
    let told = outcome(&mut dlock_at(
        &cluster.nodes[0],
        &["--user", "app", "-a", "secret", "doctor"],
    ));
    assert!(told.out.contains("may not use CLUSTER INFO\n"), "{told:?}");
}

#[test]
fn the_user_that_the_documentation_makes_for_it_may_use_all_that_it_needs() {
    let page = include_str!("../../docs/operations.md");
    let line = page
        .lines()
        .find_map(|line| line.split_once("> ACL SETUSER doctor "));
    let (_, rights) = line.expect("the page makes the user");
    let server = Server::with(DURABLE);
    server.client().ok(&format!("ACL SETUSER doctor {rights}"));
    server.client().acquire("lock:42 alice 60000");
    let login = ["--user", "doctor", "-a", "doctor-secret", "doctor"];
    let told = outcome(&mut dlock_at(&server, &login));
    assert_eq!(told.code, 0, "{told:?}");
    let cluster = Cluster::start(2);
    for node in &cluster.nodes {
        node.client().ok(&format!("ACL SETUSER doctor {rights}"));
    }
    let told = outcome(&mut dlock_at(&cluster.nodes[0], &login));
    assert!(!told.out.contains("may not"), "{told:?}");
}
