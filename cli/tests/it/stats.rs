//! `dlock stats`, and what is made of its metrics. That the module counts right is tested in `tests/it`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::support::{at, on};
use dlock_testkit::{Cluster, Server, skip, start};

/// Counters, by their names in INFO.
type Counted = BTreeMap<String, u64>;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The JSON output for this server.
fn json_stats(server: &Server) -> Counted {
    let text = at(server, &["stats", "--json"]).out;
    let mut servers: BTreeMap<String, Counted> = serde_json::from_str(&text).expect("JSON");
    servers
        .remove(&format!("127.0.0.1:{}", server.port()))
        .expect("the server is among them")
}

/// The lines of the Prometheus format that are samples: name, labels and value.
fn scrape(server: &Server) -> Vec<(String, String, f64)> {
    let text = at(server, &["stats", "--prometheus"]).out;
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (metric, value) = line.rsplit_once(' ')?;
        let (name, labels) = metric.strip_suffix('}')?.split_once('{')?;
        Some((name.to_owned(), labels.to_owned(), value.parse().ok()?))
    });
    samples.collect::<Option<_>>().unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn text_json_and_prometheus_have_the_values_of_info() {
    let (server, mut client) = start();
    client.acquire("door alice 600000");
    client.acquire("door alice 600000");
    client.call("DLOCK.EXTEND door bob 1000").unwrap_err();
    client.call("DLOCK.RELEASE gate alice").unwrap_err();
    let _waiting = server.waiter("door bob 1000 SHARED BLOCK 0");
    // Current wait times change between the calls.
    let output: Counted = json_stats(&server)
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
    let scrape = scrape(&server);
    for (what, value) in output {
        assert_eq!(info[&format!("dlock_{what}")], value.to_string(), "{what}");
        assert_eq!(lines[what.as_str()].trim(), value.to_string(), "{what}");
        assert_eq!(scraped(&scrape, &what), Some(value as f64), "{what}");
    }
}

/// The value of a field of INFO in the Prometheus format, in its unit.
fn scraped(samples: &[(String, String, f64)], field: &str) -> Option<f64> {
    let error = field
        .strip_prefix("errors_")
        .filter(|code| *code != "late_releases");
    let (base, factor) = match (error, field.split_once("_ms")) {
        (Some(_), _) => ("dlock_errors".to_owned(), 1.0),
        (_, Some((base, which))) => (format!("dlock_{base}_seconds{which}"), 1000.0),
        _ => (format!("dlock_{field}"), 1.0),
    };
    let names = ["", "_total", "_sum"].map(|suffix| base.clone() + suffix);
    let label = error.map_or(String::new(), |code| format!("error=\"{code}\""));
    let is_field =
        |(name, labels, _): &&(String, String, f64)| names.contains(name) && labels.contains(&label);
    samples
        .iter()
        .find(is_field)
        .map(|(.., value)| (value * factor).round())
}

#[test]
fn cluster_stats_have_one_entry_per_primary() {
    let cluster = Cluster::start(2);
    for n in 0..2 {
        let key = cluster.key_on(n, "job");
        cluster.client(n).acquire(&format!("{key} alice 600000"));
    }
    let samples = scrape(&cluster.nodes[0]).into_iter();
    let acquired = samples.filter(|(name, ..)| name == "dlock_acquired_total");
    let mut acquired: Vec<_> = acquired.map(|(_, labels, value)| (labels, value)).collect();
    acquired.sort_by(|(one, _), (other, _)| one.cmp(other));
    let ports = cluster.nodes.iter().map(Server::port);
    let mut expected: Vec<_> = ports
        .map(|port| (format!("server=\"127.0.0.1:{port}\""), 1.0))
        .collect();
    expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(acquired, expected);
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
