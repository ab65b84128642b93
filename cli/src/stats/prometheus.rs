//! The Prometheus text format, with its naming conventions: base units, and `_total` for counters.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::counters::ServerStats;

/// Fields that only increase while the server runs, with their help texts.
const COUNTERS: &[(&str, &str)] = &[
    ("acquired", "Grants of a lock to a new holder."),
    ("reentered", "Additional holds granted to existing holders."),
    (
        "not_granted",
        "ACQUIRE requests not granted at once and not queued.",
    ),
    ("released", "Holders that released their last hold."),
    ("extended", "Successful EXTEND requests."),
    (
        "fences_raised",
        "Holders whose fencing token was raised by EXTEND.",
    ),
    ("guarded", "GUARD requests whose check passed."),
    ("guards_refused", "GUARD requests whose check failed."),
    ("expired", "Holders removed because their lease expired."),
    ("grants_from_queue", "Grants to waiters."),
    ("wait_timeouts", "Waiters that timed out."),
    (
        "grants_rolled_back",
        "Grants rolled back because the waiter had disconnected.",
    ),
    (
        "expired_contended",
        "Holders removed because their lease expired while others waited.",
    ),
    (
        LATE_RELEASES,
        "RELEASE requests by owners that no longer held the lock.",
    ),
];

/// Also counted by error code.
const LATE_RELEASES: &str = "errors_late_releases";

/// Prefix of the fields that count errors by code.
const ERRORS: &str = "errors_";

const GAUGES: &[(&str, &str)] = &[
    (
        "locks",
        "Locks with a holder, including expired ones that are not removed yet.",
    ),
    (
        "untracked_locks",
        "1 while the keyspace is scanned for a lock that was renamed, moved or is being freed, else 0.",
    ),
    ("waiters", "Waiters in all queues."),
    ("contended_locks", "Locks with waiters."),
    (
        "longest_wait_ms",
        "Time that the longest-waiting waiter has waited.",
    ),
    (
        "longest_hold_ms",
        "Time that the oldest holder has held its lock, as of the last renewals.",
    ),
    ("fence_known", "Highest fencing token granted or observed."),
    (
        "quorum",
        "Whether this is one of several independent servers that share locks.",
    ),
    (
        "grace_left_ms",
        "Remaining time of the grace period, in which no locks are granted.",
    ),
    (
        "evictable",
        "Whether no locks are granted because the eviction policy could evict them.",
    ),
    (
        "clean_since",
        "Unix time since when nothing of the module has been written to disk; 0 if something is.",
    ),
    (
        "aof_clean",
        "Whether the append-only file holds nothing of the module.",
    ),
    ("max_lease_ms", "Longest lease that the server accepts."),
    ("startup_grace_ms", "Length of the grace period after a start."),
    (
        "failover_grace_ms",
        "Length of the grace period after a failover.",
    ),
    ("held_ms_p50", "Median of hold duration."),
    ("held_ms_p99", "99th percentile of hold duration."),
    ("held_ms_max", "Maximum hold duration."),
    ("waited_ms_p50", "Median of the wait time of granted waiters."),
    (
        "waited_ms_p99",
        "99th percentile of the wait time of granted waiters.",
    ),
    ("waited_ms_max", "Maximum wait time of granted waiters."),
];

/// Fields with a total and buckets.
const HISTOGRAMS: &[(&str, &str)] = &[
    ("held_ms", "How long former holders held their locks."),
    ("waited_ms", "How long granted waiters waited."),
];

/// A metric and its samples.
struct Metric {
    help: &'static str,
    kind: &'static str,
    /// What follows the name, with labels, and the value.
    samples: Vec<(String, String)>,
}

/// One metric per field, with a sample per server.
pub fn exposition(servers: &[ServerStats]) -> String {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for stats in servers {
        add_details(&mut metrics, stats);
        add_histograms(&mut metrics, stats);
        let server = &stats.server;
        for (field, value) in stats.fields.iter().cloned().chain(settings(stats)) {
            let (field, value) = (&field, &value);
            if HISTOGRAMS.iter().any(|(name, _)| name == field) {
                continue;
            }
            let (name, help, kind) = describe(field);
            let mut labels = format!("server=\"{}\"", escape_label(server));
            if let Some(error) = error_code_of(field) {
                _ = write!(labels, ",error=\"{}\"", escape_label(error));
            }
            let metric = metrics.entry(name).or_insert_with(|| Metric {
                help,
                kind,
                samples: Vec::new(),
            });
            metric
                .samples
                .push((format!("{{{labels}}}"), in_base_unit(field, *value)));
        }
    }
    let mut text = String::new();
    for (name, metric) in metrics {
        _ = writeln!(text, "# HELP {name} {}", metric.help);
        _ = writeln!(text, "# TYPE {name} {}", metric.kind);
        for (labels, value) in metric.samples {
            _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

/// Metrics that are not fields of INFO dlock.
fn add_details(metrics: &mut BTreeMap<String, Metric>, stats: &ServerStats) {
    let server = escape_label(&stats.server);
    let mut add = |name: &str, help, labels: String, value: &str| {
        let metric = metrics.entry(name.to_owned()).or_insert_with(|| Metric {
            help,
            kind: "gauge",
            samples: Vec::new(),
        });
        metric
            .samples
            .push((format!("{{server=\"{server}\"{labels}}}"), value.to_owned()));
    };
    let up = if stats.is_down { "0" } else { "1" };
    add("dlock_up", "Whether the server could be read.", String::new(), up);
    if stats.role.is_empty() {
        return;
    }
    let role = format!(",role=\"{}\"", stats.role);
    add(
        "dlock_role",
        "Always 1. The label is the role of the server.",
        role,
        "1",
    );
    let (module, server_version) = &stats.versions;
    let versions = format!(
        ",version=\"{}\",server_version=\"{}\"",
        escape_label(module),
        escape_label(server_version)
    );
    let help = "Always 1. The labels are the versions of the module and of the server.";
    add("dlock_build_info", help, versions, "1");
}

/// Cumulative buckets with upper bounds in seconds, their sum and their count.
fn add_histograms(metrics: &mut BTreeMap<String, Metric>, stats: &ServerStats) {
    let server = escape_label(&stats.server);
    for (field, buckets) in &stats.histograms {
        let sum = stats.fields.iter().find(|(name, _)| name == field);
        let help = HISTOGRAMS.iter().find(|(name, _)| name == field);
        let (Some((_, sum)), Some((_, help)), Some((_, count))) = (sum, help, buckets.last()) else {
            continue;
        };
        let (name, ..) = describe(field);
        let metric = metrics.entry(name).or_insert_with(|| Metric {
            help,
            kind: "histogram",
            samples: Vec::new(),
        });
        for (bound_ms, count) in buckets {
            let bound = bound_ms.map_or("+Inf".to_owned(), |ms| in_base_unit(field, ms));
            let labels = format!("_bucket{{server=\"{server}\",le=\"{bound}\"}}");
            metric.samples.push((labels, count.to_string()));
        }
        for (suffix, value) in [("sum", in_base_unit(field, *sum)), ("count", count.to_string())] {
            metric
                .samples
                .push((format!("_{suffix}{{server=\"{server}\"}}"), value));
        }
    }
}

fn settings(stats: &ServerStats) -> impl Iterator<Item = (String, u64)> {
    stats
        .settings_ms
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
}

/// Name, help text and type of the metric for a field. Fields of a newer module are untyped.
fn describe(field: &str) -> (String, &'static str, &'static str) {
    let base = match field.split_once("_ms") {
        Some((base, which)) => format!("dlock_{base}_seconds{which}"),
        None => format!("dlock_{field}"),
    };
    let help = |fields: &[(&str, &'static str)]| {
        fields
            .iter()
            .find(|(name, _)| *name == field)
            .map(|(_, help)| *help)
    };
    if error_code_of(field).is_some() {
        let help = "Requests rejected with an error, by error code.";
        return ("dlock_errors_total".to_owned(), help, "counter");
    }
    if let Some(help) = help(COUNTERS) {
        return (base + "_total", help, "counter");
    }
    match help(GAUGES) {
        Some(help) => (base, help, "gauge"),
        None => (base, "Field of INFO dlock.", "untyped"),
    }
}

/// The error code that a field counts.
fn error_code_of(field: &str) -> Option<&str> {
    field.strip_prefix(ERRORS).filter(|_| field != LATE_RELEASES)
}

fn in_base_unit(field: &str, value: u64) -> String {
    if field.contains("_ms") {
        format!("{}.{:03}", value / 1000, value % 1000)
    } else {
        value.to_string()
    }
}

/// Escapes a label value.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use prometheus_parse::{Scrape, Value};

    use super::*;

    fn scraped(servers: &[(&str, &[(&str, u64)])]) -> (String, Scrape) {
        let servers: Vec<ServerStats> = servers
            .iter()
            .map(|(server, fields)| ServerStats {
                server: (*server).to_owned(),
                fields: fields
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), *value))
                    .collect(),
                ..ServerStats::default()
            })
            .collect();
        let text = exposition(&servers);
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).expect("valid text format");
        (text, scrape)
    }

    fn value(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> Option<Value> {
        let found = scrape.samples.iter().find(|sample| {
            sample.metric == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(label) == Some(value))
        });
        found.map(|sample| sample.value.clone())
    }

    #[test]
    fn exposition_is_read_by_parser() {
        let fields = [
            ("acquired", 7),
            ("waiters", 2),
            ("errors_stale", 3),
            ("grace_left_ms", 30),
        ];
        let (_, scrape) = scraped(&[("one:6379", &fields)]);
        let one = [("server", "one:6379")];
        assert_eq!(
            value(&scrape, "dlock_acquired_total", &one),
            Some(Value::Counter(7.0))
        );
        assert_eq!(value(&scrape, "dlock_waiters", &one), Some(Value::Gauge(2.0)));
        assert_eq!(
            value(&scrape, "dlock_grace_left_seconds", &one),
            Some(Value::Gauge(0.03))
        );
        let stale = [("error", "stale"), ("server", "one:6379")];
        assert_eq!(
            value(&scrape, "dlock_errors_total", &stale),
            Some(Value::Counter(3.0))
        );
    }

    #[test]
    fn details_are_labels_and_gauges_and_unreachable_server_is_down() {
        let server = ServerStats {
            server: "one".to_owned(),
            settings_ms: vec![("max_lease_ms", 30_000)],
            role: "primary",
            versions: ("0.1.0".to_owned(), "7.2.4".to_owned()),
            ..ServerStats::default()
        };
        let text = exposition(&[server, ServerStats::down("two".to_owned())]);
        for line in [
            "dlock_up{server=\"one\"} 1",
            "dlock_up{server=\"two\"} 0",
            "dlock_role{server=\"one\",role=\"primary\"} 1",
            "dlock_build_info{server=\"one\",version=\"0.1.0\",server_version=\"7.2.4\"} 1",
            "dlock_max_lease_seconds{server=\"one\"} 30.000",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn buckets_become_a_histogram_with_sum_and_count() {
        let server = ServerStats {
            server: "one".to_owned(),
            fields: vec![("waited_ms".to_owned(), 1_050)],
            histograms: vec![("waited_ms".to_owned(), vec![(Some(5), 2), (None, 3)])],
            ..ServerStats::default()
        };
        let text = exposition(&[server]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("waited")).collect();
        assert_eq!(
            lines[1..],
            [
                "# TYPE dlock_waited_seconds histogram",
                "dlock_waited_seconds_bucket{server=\"one\",le=\"0.005\"} 2",
                "dlock_waited_seconds_bucket{server=\"one\",le=\"+Inf\"} 3",
                "dlock_waited_seconds_sum{server=\"one\"} 1.050",
                "dlock_waited_seconds_count{server=\"one\"} 3",
            ]
        );
    }

    #[test]
    fn metric_of_several_servers_is_described_once() {
        let (text, scrape) = scraped(&[("one", &[("locks", 1)]), ("two", &[("locks", 2)])]);
        assert_eq!(text.matches("# TYPE dlock_locks gauge").count(), 1);
        assert_eq!(
            value(&scrape, "dlock_locks", &[("server", "two")]),
            Some(Value::Gauge(2.0))
        );
    }

    #[test]
    fn unknown_field_is_untyped_and_label_is_escaped() {
        let (_, scrape) = scraped(&[("a\"b\\c", &[("later_added", 5)])]);
        let sample = scrape
            .samples
            .iter()
            .find(|sample| sample.metric == "dlock_later_added");
        let sample = sample.expect("the metric");
        assert_eq!(
            (sample.metric.as_str(), &sample.value),
            ("dlock_later_added", &Value::Untyped(5.0))
        );
    }
}
