//! The text exposition format of Prometheus: the units of its conventions, seconds, and `_total` for counters.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Counted;

/// The fields that only rise, as long as the server runs.
const COUNTERS: &[(&str, &str)] = &[
    ("acquired", "Owners that became holders."),
    ("reentered", "Further holds given to holders."),
    ("not_granted", "ACQUIREs that were answered with null at once."),
    ("released", "Holders that gave up their last hold."),
    ("extended", "EXTENDs that were answered with a lease."),
    (
        "expired",
        "Holders that were removed because their lease had ended.",
    ),
    ("grants_from_queue", "Waiters that were granted."),
    ("waited_ms", "For how long granted waiters have waited, together."),
    ("wait_timeouts", "Waiters whose time was up."),
    (
        "grants_rolled_back",
        "Grants to waiters that had gone, given back.",
    ),
    (
        "expired_contended",
        "Holders that were removed because their lease had ended, while somebody waited.",
    ),
    (
        LATE_RELEASES,
        "RELEASEs by owners that had lost the lock before, or never had it.",
    ),
];

/// Counted among the errors too, by their first words.
const LATE_RELEASES: &str = "errors_late_releases";

/// Refused requests, each with the first word of the error in its name.
const ERRORS: &str = "errors_";

const GAUGES: &[(&str, &str)] = &[
    ("locks", "Locks, those included whose leases have ended just now."),
    (
        "untracked_locks",
        "Whether the module looks where a renamed or moved lock went.",
    ),
    ("waiters", "Requests that wait."),
    ("contended_locks", "Locks that somebody waits for."),
    (
        "longest_wait_ms",
        "For how long the longest-waiting request has waited.",
    ),
    ("fence_known", "The highest fence seen."),
    (
        "grace_left_ms",
        "What is left of a grace in which nobody gets a lock.",
    ),
    (
        "evictable",
        "Whether new owners are refused because locks could be evicted.",
    ),
    ("held_ms_p50", "Half of the holds took no longer."),
    ("held_ms_p99", "99 of 100 holds took no longer."),
    ("held_ms_max", "No hold took longer."),
    ("waited_ms_p50", "Half of the granted waiters waited no longer."),
    ("waited_ms_p99", "99 of 100 granted waiters waited no longer."),
    ("waited_ms_max", "No granted waiter waited longer."),
];

/// A metric with its values.
struct Metric {
    help: &'static str,
    kind: &'static str,
    /// Labels, and the value.
    samples: Vec<(String, String)>,
}

/// All that the servers count, a sample for each of them.
pub fn exposition(servers: &[Counted]) -> String {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for Counted { server, fields } in servers {
        for (field, value) in fields {
            let (name, help, kind) = described(field);
            let mut labels = format!("server=\"{}\"", escaped(server));
            if let Some(error) = error_of(field) {
                _ = write!(labels, ",error=\"{}\"", escaped(error));
            }
            let metric = metrics.entry(name).or_insert_with(|| Metric {
                help,
                kind,
                samples: Vec::new(),
            });
            metric.samples.push((labels, in_base_unit(field, *value)));
        }
    }
    let mut text = String::new();
    for (name, metric) in metrics {
        _ = writeln!(text, "# HELP {name} {}", metric.help);
        _ = writeln!(text, "# TYPE {name} {}", metric.kind);
        for (labels, value) in metric.samples {
            _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text
}

/// Name, help and type of a field's metric. A field that a newer module adds has no type.
fn described(field: &str) -> (String, &'static str, &'static str) {
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
    if error_of(field).is_some() {
        let help = "Refused requests by the first word of their error.";
        return ("dlock_errors_total".to_owned(), help, "counter");
    }
    if let Some(help) = help(COUNTERS) {
        return (base + "_total", help, "counter");
    }
    match help(GAUGES) {
        Some(help) => (base, help, "gauge"),
        None => (base, "A field of INFO dlock.", "untyped"),
    }
}

/// The first word of the errors that a field counts.
fn error_of(field: &str) -> Option<&str> {
    field.strip_prefix(ERRORS).filter(|_| field != LATE_RELEASES)
}

fn in_base_unit(field: &str, value: u64) -> String {
    if field.contains("_ms") {
        format!("{}.{:03}", value / 1000, value % 1000)
    } else {
        value.to_string()
    }
}

/// As the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use prometheus_parse::{Scrape, Value};

    use super::*;

    fn scraped(servers: &[(&str, &[(&str, u64)])]) -> (String, Scrape) {
        let servers: Vec<Counted> = servers
            .iter()
            .map(|(server, fields)| Counted {
                server: (*server).to_owned(),
                fields: fields
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), *value))
                    .collect(),
            })
            .collect();
        let text = exposition(&servers);
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).expect("text that parses");
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
    fn a_parser_reads_counters_gauges_errors_and_times() {
        let fields = [
            ("acquired", 7),
            ("waiters", 2),
            ("errors_stale", 3),
            ("waited_ms", 1_050),
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
            value(&scrape, "dlock_waited_seconds_total", &one),
            Some(Value::Counter(1.05))
        );
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
    fn a_metric_is_described_once_for_all_servers() {
        let (text, scrape) = scraped(&[("one", &[("locks", 1)]), ("two", &[("locks", 2)])]);
        assert_eq!(text.matches("# TYPE dlock_locks gauge").count(), 1);
        assert_eq!(
            value(&scrape, "dlock_locks", &[("server", "two")]),
            Some(Value::Gauge(2.0))
        );
    }

    #[test]
    fn an_unknown_field_has_no_type_and_a_strange_name_does_no_harm() {
        let (_, scrape) = scraped(&[("a\"b\\c", &[("later_added", 5)])]);
        let sample = &scrape.samples[0];
        assert_eq!(
            (sample.metric.as_str(), &sample.value),
            ("dlock_later_added", &Value::Untyped(5.0))
        );
    }
}
