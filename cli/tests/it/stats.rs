//! `dlock stats`, and what is made of its metrics. That the module counts right is tested in `tests/it`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::support::{at, json, on};
use dlock_testkit::{Cluster, Server, skip, start};

/// Counters, by their names in INFO.
type Counted = BTreeMap<String, u64>;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The JSON output, by server.
fn json_stats(server: &Server) -> BTreeMap<String, Counted> {
    serde_json::from_value(json(server, &["stats"])).expect("counters")
}

#[test]
fn text_and_json_have_the_values_of_info() {
    let (server, mut client) = start();
    client.acquire("door alice 600000");
    client.acquire("door alice 600000");
    client.call("DLOCK.EXTEND door bob 1000").unwrap_err();
    client.call("DLOCK.RELEASE gate alice").unwrap_err();
    let _waiting = server.waiter("door bob 1000 SHARED BLOCK 0");
    // Current wait times change between the calls.
    let output = json_stats(&server).into_values().next();
    let output: Counted = output
        .expect("one server")
        .into_iter()
        .filter(|(what, _)| !what.starts_with("longest"))
        .collect();
    for (what, value) in [
        ("reentered", 1),
        ("errors_notowner", 1),
        ("errors_late_releases", 1),
        ("waiters", 1),
    ] {
        assert_eq!(output[what], value, "{what}: {output:?}");
    }
    let info = client.info_section("dlock");
    let people = at(&server, &["stats"]).out;
    let lines: BTreeMap<&str, &str> = people.lines().filter_map(|line| line.split_once(' ')).collect();
    for (what, value) in output {
        assert_eq!(info[&format!("dlock_{what}")], value.to_string(), "{what}");
        assert_eq!(lines[what.as_str()].trim(), value.to_string(), "{what}");
    }
}

#[test]
fn cluster_stats_have_one_entry_per_primary() {
    let cluster = Cluster::start(2);
    for n in 0..2 {
        let key = cluster.key_on(n, "job");
        cluster.client(n).acquire(&format!("{key} alice 600000"));
    }
    let stats = json_stats(&cluster.nodes[0]);
    assert_eq!(stats.len(), 2, "{stats:?}");
    for node in &cluster.nodes {
        let counted = &stats[&format!("127.0.0.1:{}", node.port())];
        assert_eq!(counted["acquired"], 1, "{stats:?}");
    }
}

#[test]
fn unreachable_server_has_metric_up_0() {
    on(1, &["stats", "--prometheus"])
        .exits(69)
        .shows("dlock_up{server=\"127.0.0.1:1\"} 0")
        .warns("cannot connect");
}

#[test]
fn alert_rules_and_dashboard_use_existing_metrics() {
    let server = Server::start();
    server.client().call("DLOCK.RELEASE job alice").unwrap_err();
    let text = at(&server, &["stats", "--prometheus"]).out;
    let read = |file: &str| fs::read_to_string(deploy().join(file)).expect("the file is there");
    let (rules, dashboard) = (read("prometheus/dlock.rules.yml"), read("grafana/dlock.json"));
    let _: serde_json::Value = serde_json::from_str(&dashboard).expect("valid JSON");
    let mut checked = 0;
    for file in [rules, dashboard] {
        let words = file.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
        for metric in words.filter(|word| word.starts_with("dlock_")) {
            assert!(text.contains(&format!("\n{metric}{{")), "{metric}:\n{text}");
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}

#[test]
fn alert_rules_pass_promtool() {
    for command in ["check", "test"] {
        let mut promtool = Command::new("promtool");
        let file = if command == "test" {
            "dlock.rules.test.yml"
        } else {
            "dlock.rules.yml"
        };
        let output = promtool
            .current_dir(deploy().join("prometheus"))
            .args([command, "rules", file])
            .output();
        match output {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(_) => return skip("promtool is not installed (Debian's package is prometheus)"),
        }
    }
}

#[test]
fn service_writes_the_metrics_for_the_node_exporter() {
    let (server, directory) = (
        Server::start(),
        tempfile::tempdir().expect("a temporary directory"),
    );
    let unit = fs::read_to_string(deploy().join("systemd/dlock-metrics.service")).expect("the unit");
    let script = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")?.strip_suffix('\''))
        .expect("a shell command");
    let tool = Path::new(env!("CARGO_BIN_EXE_dlock"))
        .parent()
        .expect("a directory");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(directory.path())
        .env(
            "PATH",
            format!("{}:{}", tool.display(), env::var("PATH").expect("a path")),
        )
        .env("DLOCK_URL", server.url());
    assert!(shell.status().expect("a shell").success());
    let written = fs::read_to_string(directory.path().join("dlock.prom")).expect("text");
    assert!(written.contains("\ndlock_up{"), "{written}");
}
