//! `dlock stats`, compared with the replies that clients received.

use std::collections::BTreeMap;

use crate::support::{at, on};
use dlock_testkit::{Client, Cluster, Grant, Server, pause, start, wait_for};

/// Counters, by their names in INFO.
type Counted = BTreeMap<String, u64>;

fn count(counted: &mut Counted, what: &str) {
    *counted.entry(what.to_owned()).or_default() += 1;
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

/// Sends requests of three owners for four locks and counts the replies.
fn requests(client: &mut Client, counted: &mut Counted) {
    let mut random: u64 = 2026;
    let mut pick = |among: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % among
    };
    for _ in 0..500 {
        let (lock, owner) = (pick(4), pick(3));
        match pick(3) {
            0 => match client.try_acquire(&format!("lock{lock} owner{owner} 600000")) {
                Some(Grant { holds: 1, .. }) => count(counted, "acquired"),
                Some(_) => count(counted, "reentered"),
                None => count(counted, "not_granted"),
            },
            1 => match client.call(&format!("DLOCK.RELEASE lock{lock} owner{owner}")) {
                Ok(redis::Value::Int(0)) => count(counted, "released"),
                Ok(_) => {}
                Err(error) => {
                    count(counted, &error_field(&error));
                    count(counted, "errors_late_releases");
                }
            },
            _ => match client.call(&format!("DLOCK.EXTEND lock{lock} owner{owner} 600000")) {
                Ok(_) => count(counted, "extended"),
                Err(error) => count(counted, &error_field(&error)),
            },
        }
    }
}

fn error_field(error: &redis::RedisError) -> String {
    format!("errors_{}", error.code().expect("a first word").to_lowercase())
}

#[test]
fn every_reply_is_counted_once() {
    let (server, mut client) = start();
    let mut counted = Counted::new();
    requests(&mut client, &mut counted);
    let output = json_stats(&server);
    for (what, times) in &counted {
        assert_eq!(output[what], *times, "{what}: {counted:?}\n{output:?}");
    }
    let expected = [
        "acquired",
        "errors_late_releases",
        "errors_notheld",
        "errors_notowner",
        "extended",
        "not_granted",
        "reentered",
        "released",
    ];
    assert_eq!(counted.keys().collect::<Vec<_>>(), expected, "all of it happened");
}

#[test]
fn waits_and_expired_leases_are_counted_and_timed() {
    let (server, mut client) = start();
    client.acquire("queue owner 600000");
    for n in 0..5 {
        let mut waiter = server.waiter(&format!("queue waiter{n} 600000 BLOCK 0"));
        pause(20);
        let holder = if n == 0 {
            "owner".to_owned()
        } else {
            format!("waiter{}", n - 1)
        };
        client.release(&format!("queue {holder}"));
        waiter.granted();
    }
    for n in 0..3 {
        let mut late = server.send_acquire(&format!("queue late{n} 600000 BLOCK 10"));
        late.assert_null();
    }
    for n in 0..4 {
        client.acquire(&format!("short{n} owner 10"));
    }
    wait_for("the end of the leases", || json_stats(&server)["expired"] == 4);
    let output = json_stats(&server);
    for (what, times) in [
        ("acquired", 10),
        ("grants_from_queue", 5),
        ("released", 5),
        ("wait_timeouts", 3),
        ("not_granted", 0),
        ("expired", 4),
        ("expired_contended", 0),
        ("waiters", 0),
        ("locks", 1),
    ] {
        assert_eq!(output[what], times, "{what}: {output:?}");
    }
    for what in ["waited_ms", "held_ms"] {
        assert!(output[what] >= 5 * 19, "{what}: {output:?}");
    }
}

#[test]
fn text_json_and_prometheus_have_the_same_values() {
    let (server, mut client) = start();
    requests(&mut client, &mut Counted::new());
    let _waiting = server.waiter("lock0 another 1000 SHARED BLOCK 0");
    // Current wait times change between the calls.
    let output: Counted = json_stats(&server)
        .into_iter()
        .filter(|(what, _)| !what.starts_with("longest"))
        .collect();
    let people = at(&server, &["stats"]).out;
    let lines: BTreeMap<&str, &str> = people.lines().filter_map(|line| line.split_once(' ')).collect();
    let scrape = scrape(&server);
    for (what, value) in output {
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
fn metrics_have_role_versions_and_graces() {
    let server =
        Server::with("dlock.max-lease-ms 30000\ndlock.startup-grace-ms 5000\ndlock.failover-grace-ms -1");
    let text = at(&server, &["stats", "--prometheus"]).out;
    for part in [
        "role=\"primary\"} 1",
        "version=\"0.1.0\",server_version=\"",
        "dlock_max_lease_seconds{server=\"",
        "\"} 5.000",
        "\"} 30.000",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn alert_rules_and_dashboard_use_existing_metrics() {
    let server = Server::start();
    server.client().call("DLOCK.RELEASE job alice").unwrap_err();
    let text = at(&server, &["stats", "--prometheus"]).out;
    let rules = include_str!("../../../deploy/prometheus/dlock.rules.yml");
    let dashboard = include_str!("../../../deploy/grafana/dlock.json");
    let _: serde_json::Value = serde_json::from_str(dashboard).expect("valid JSON");
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
