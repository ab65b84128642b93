//! The Prometheus text format, with its naming conventions: base units, and `_total` for counters.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::counters::ServerStats;

/// The fields of INFO: `field | type | help text`. Counters only increase while the server runs.
const METRICS: &str = include_str!("metrics.txt");

/// The type and the help text of a field.
fn find(field: &str) -> Option<(&'static str, &'static str)> {
    let mut rows = METRICS.lines().filter_map(|row| row.split_once(" | "));
    let (_, row) = rows.find(|(name, _)| *name == field)?;
    row.split_once(" | ")
}

/// Metrics by name, with their help text, type and samples.
#[derive(Default)]
struct Metrics(BTreeMap<String, (&'static str, &'static str, String)>);

impl Metrics {
    /// Adds the sample `name suffix{labels} value`.
    fn add(
        &mut self,
        (name, help, kind): (&str, &'static str, &'static str),
        suffix: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let metric = self
            .0
            .entry(name.to_owned())
            .or_insert((help, kind, String::new()));
        let label = |(label, value): &(&str, &str)| format!("{label}=\"{}\"", escape_label(value));
        let labels: Vec<String> = labels.iter().map(label).collect();
        _ = writeln!(metric.2, "{name}{suffix}{{{}}} {value}", labels.join(","));
    }
}

/// One metric per field, with a sample per server.
pub fn exposition(servers: &[ServerStats]) -> String {
    let mut metrics = Metrics::default();
    for stats in servers {
        let up = ("dlock_up", "Whether the server could be read.", "gauge");
        let labels = [("server", stats.server.as_str())];
        metrics.add(up, "", &labels, u8::from(!stats.is_down));
        add_histograms(&mut metrics, stats);
        for (field, value) in stats.fields.iter().chain(&stats.server_fields) {
            let (name, help, kind) = describe(field);
            if kind != "histogram" {
                let error = error_code_of(field).map(|code| ("error", code));
                let labels: Vec<_> = labels.into_iter().chain(error).collect();
                metrics.add((&name, help, kind), "", &labels, in_base_unit(field, *value));
            }
        }
    }
    let mut text = String::new();
    for (name, (help, kind, samples)) in metrics.0 {
        _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
    }
    text
}

/// Cumulative buckets with upper bounds in seconds, their sum and their count.
fn add_histograms(metrics: &mut Metrics, stats: &ServerStats) {
    let server = ("server", stats.server.as_str());
    for (field, buckets) in &stats.histograms {
        let sum = stats.fields.iter().find(|(name, _)| name == field);
        let (name, help, kind @ "histogram") = describe(field) else {
            continue;
        };
        let (Some((_, sum)), Some((_, count))) = (sum, buckets.last()) else {
            continue;
        };
        let metric = (name.as_str(), help, kind);
        for (bound_ms, count) in buckets {
            let bound = bound_ms.map_or("+Inf".to_owned(), |ms| in_base_unit(field, ms));
            metrics.add(metric, "_bucket", &[server, ("le", &bound)], count);
        }
        metrics.add(metric, "_sum", &[server], in_base_unit(field, *sum));
        metrics.add(metric, "_count", &[server], count);
    }
}

/// Name, help text and type of the metric for a field. Fields of a newer module are untyped.
fn describe(field: &str) -> (String, &'static str, &'static str) {
    let base = match field.split_once("_ms") {
        Some((base, which)) => format!("dlock_{base}_seconds{which}"),
        None => format!("dlock_{field}"),
    };
    if error_code_of(field).is_some() {
        let help = "Requests rejected with an error, by error code.";
        return ("dlock_errors_total".to_owned(), help, "counter");
    }
    match find(field) {
        Some((kind @ "counter", help)) => (base + "_total", help, kind),
        Some((kind, help)) => (base, help, kind),
        None => (base, "Field of INFO dlock.", "untyped"),
    }
}

/// The error code that a field counts.
fn error_code_of(field: &str) -> Option<&str> {
    field.strip_prefix("errors_").filter(|_| find(field).is_none())
}

fn in_base_unit(field: &str, value: u64) -> String {
    if field.contains("_ms") {
        format!("{}.{:03}", value / 1000, value % 1000)
    } else {
        value.to_string()
    }
}

fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, fields: &[(&str, u64)]) -> ServerStats {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), *value));
        ServerStats {
            server: name.to_owned(),
            fields: fields.collect(),
            ..ServerStats::default()
        }
    }

    #[test]
    fn fields_have_types_base_units_labels_and_one_description() {
        let fields = [
            ("acquired", 7),
            ("waiters", 2),
            ("errors_stale", 3),
            ("errors_late_releases", 1),
            ("grace_left_ms", 30),
            ("later_added", 5),
        ];
        let text = exposition(&[server("one:6379", &fields), server("a\"b\\c", &[("acquired", 5)])]);
        let expected = [
            "# TYPE dlock_acquired_total counter",
            "dlock_acquired_total{server=\"one:6379\"} 7",
            "dlock_acquired_total{server=\"a\\\"b\\\\c\"} 5",
            "# TYPE dlock_waiters gauge",
            "dlock_errors_total{server=\"one:6379\",error=\"stale\"} 3",
            "dlock_errors_late_releases_total{server=\"one:6379\"} 1",
            "dlock_grace_left_seconds{server=\"one:6379\"} 0.030",
            "# TYPE dlock_later_added untyped",
        ];
        for line in expected {
            let count = text.lines().filter(|other| *other == line).count();
            assert_eq!(count, 1, "{line}:\n{text}");
        }
    }

    #[test]
    fn buckets_become_a_histogram_with_sum_and_count() {
        let mut server = server("one", &[("waited_ms", 1_050)]);
        server.histograms = vec![("waited_ms".to_owned(), vec![(Some(5), 2), (None, 3)])];
        let text = exposition(&[server]);
        let expected = "\
# TYPE dlock_waited_seconds histogram
dlock_waited_seconds_bucket{server=\"one\",le=\"0.005\"} 2
dlock_waited_seconds_bucket{server=\"one\",le=\"+Inf\"} 3
dlock_waited_seconds_sum{server=\"one\"} 1.050
dlock_waited_seconds_count{server=\"one\"} 3
";
        assert!(text.ends_with(expected), "{text}");
    }
}
