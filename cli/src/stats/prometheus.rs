//! The Prometheus text format, with its naming conventions: base units, and `_total` for counters.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::counters::ServerStats;

/// Fields that only increase while the server runs, with their help texts.
const COUNTERS: &str = "
acquired: Grants of a lock to a new holder.
reentered: Additional holds granted to existing holders.
not_granted: ACQUIRE requests not granted at once and not queued.
released: Holders that released their last hold.
extended: Successful EXTEND requests.
fences_raised: Holders whose fencing token was raised by EXTEND.
guarded: GUARD requests whose check passed.
guards_refused: GUARD requests whose check failed.
expired: Holders removed because their lease expired.
grants_from_queue: Grants to waiters.
wait_timeouts: Waiters that timed out.
grants_rolled_back: Grants rolled back because the waiter had disconnected or its inbox had ended.
internal_errors: States that should be impossible, which were handled: please report them.
limit_mismatches: ACQUIRE requests whose LIMIT differs from that of the holders.
deadlock_searches_abandoned: Requests that wait although their search for deadlocks was abandoned.
expired_contended: Holders removed because their lease expired while others waited.
inboxes_ended: Inboxes that ended because nobody received from them any more.
sync_timeouts: Replies and answers that replicas did not confirm in time.
errors_late_releases: RELEASE requests by owners that no longer held the lock.";

const GAUGES: &str = "
locks: Locks with a holder, including expired ones that are not removed yet.
waiters: Waiters in all queues.
waiters_queued: Waiters whose answers go to inboxes.
inboxes: Inboxes, from which processes receive the answers to their requests.
inbox_answers: Answers in inboxes that are not acknowledged.
contended_locks: Locks with waiters.
longest_wait_ms: Time that the longest-waiting waiter has waited.
longest_hold_ms: Time that the oldest holder has held its lock, as of the last renewals.
fence_known: Highest fencing token granted or observed.
quorum: Whether this is one of several independent servers that share locks.
sync_replicas: Replicas that are online, while grants wait for them.
sync_waiting: Replies and answers that are held back until replicas have the grant.
grace_left_ms: Remaining time of the grace period, in which no locks are granted.
aof_failed: Whether the last write or rewrite of the append-only file failed.
evictable: Whether no locks are granted because the eviction policy could evict them.
max_lease_ms: Longest lease that the server accepts.";

/// Fields with a total and buckets.
const HISTOGRAMS: &str = "
held_ms: How long former holders held their locks.
waited_ms: How long granted waiters waited.
sync_ms: How long replies and answers were held back until replicas had the grant.";

/// The help text of a field.
fn help(table: &'static str, field: &str) -> Option<&'static str> {
    let mut lines = table.lines().filter_map(|line| line.split_once(": "));
    lines.find_map(|(name, help)| (name == field).then_some(help))
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
            if help(HISTOGRAMS, field).is_none() {
                let (name, help, kind) = describe(field);
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
        let (Some((_, sum)), Some(help), Some((_, count))) = (sum, help(HISTOGRAMS, field), buckets.last())
        else {
            continue;
        };
        let (name, ..) = describe(field);
        let metric = (name.as_str(), help, "histogram");
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
    if let Some(help) = help(COUNTERS, field) {
        return (base + "_total", help, "counter");
    }
    match help(GAUGES, field) {
        Some(help) => (base, help, "gauge"),
        None => (base, "Field of INFO dlock.", "untyped"),
    }
}

/// The error code that a field counts.
fn error_code_of(field: &str) -> Option<&str> {
    field
        .strip_prefix("errors_")
        .filter(|_| help(COUNTERS, field).is_none())
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
