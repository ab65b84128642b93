//! Reads INFO dlock, and for Prometheus the role, the versions and the settings.

use redis::cmd;

use crate::exit::Failure;
use crate::server::{Fields, Node};
use crate::text::module_version_text;

/// The counters of one server.
#[derive(Default)]
pub struct ServerStats {
    pub server: String,
    /// The numeric fields of INFO dlock, without their prefix.
    pub fields: Vec<(String, u64)>,
    /// Histograms of durations, by field.
    pub histograms: Vec<(String, Buckets)>,
    /// Settings that are durations, in milliseconds. Empty without permission for CONFIG GET.
    pub settings_ms: Vec<(&'static str, u64)>,
    /// `primary` or `replica`.
    pub role: &'static str,
    /// The version of the module and of the server.
    pub versions: (String, String),
    /// Whether the server is unreachable, so that all else is empty.
    pub is_down: bool,
}

/// Upper bounds in milliseconds, `None` for infinity, and how many durations were at most that long.
pub type Buckets = Vec<(Option<u64>, u64)>;

impl ServerStats {
    pub fn down(server: String) -> Self {
        Self {
            server,
            is_down: true,
            ..Self::default()
        }
    }
}

pub fn fetch(node: &mut Node) -> Result<ServerStats, Failure> {
    node.require_module()?;
    let info = node.info(&["dlock", "replication"])?;
    Ok(ServerStats {
        server: node.name.clone(),
        role: match info.get("role") {
            "slave" => "replica",
            _ => "primary",
        },
        fields: numeric_fields(&info),
        histograms: histograms(&info),
        ..ServerStats::default()
    })
}

/// Adds what only Prometheus needs.
pub fn fetch_details(node: &mut Node, stats: &mut ServerStats) {
    if let Ok(info) = node.info(&["everything"]) {
        let server = match info.get("valkey_version") {
            "" => info.get("redis_version"),
            version => version,
        };
        stats.versions = (module_version(&info).unwrap_or_default(), server.to_owned());
        stats.fields.extend(server_fields(&info));
    }
    if let Ok(config) = node.query(cmd("CONFIG").arg("GET").arg("dlock.*")) {
        stats.settings_ms = settings_ms(&Fields(config));
    }
}

/// What the server itself counts or reports, and what stops locks.
fn server_fields(info: &Fields) -> [(String, u64); 2] {
    let rejected = info.get("errorstat_NOREPLICAS").strip_prefix("count=");
    let rejected = rejected.and_then(|count| count.parse().ok()).unwrap_or(0);
    let statuses = ["aof_last_write_status", "aof_last_bgrewrite_status"];
    let aof_failed = statuses.iter().any(|status| info.get(status) == "err");
    let fields = [("errors_noreplicas", rejected), ("aof_failed", aof_failed.into())];
    fields.map(|(name, value)| (name.to_owned(), value))
}

/// From a line such as `module:name=dlock,ver=100,api=1,...`. The other modules have the same field name, so this may
/// be missing.
fn module_version(info: &Fields) -> Option<String> {
    let module = info.get("module").strip_prefix("name=dlock,ver=")?;
    module.split(',').next()?.parse().ok().map(module_version_text)
}

/// A grace period of -1 is as long as the longest lease.
fn settings_ms(config: &Fields) -> Vec<(&'static str, u64)> {
    let max_lease = config.number("dlock.max-lease-ms");
    let settings = [
        ("startup_grace_ms", "dlock.startup-grace-ms"),
        ("failover_grace_ms", "dlock.failover-grace-ms"),
    ];
    let grace = |(field, name)| Some((field, config.number(name).or(max_lease)?));
    settings.into_iter().filter_map(grace).collect()
}

fn numeric_fields(info: &Fields) -> Vec<(String, u64)> {
    let fields = info.0.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("dlock_")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    fields.collect()
}

/// From fields such as `dlock_held_ms_buckets:1=0,5=2,inf=7`.
fn histograms(info: &Fields) -> Vec<(String, Buckets)> {
    let bucket = |pair: &str| -> Option<(Option<u64>, u64)> {
        let (bound, count) = pair.split_once('=')?;
        Some((bound.parse().ok(), count.parse().ok()?))
    };
    let fields = info.0.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("dlock_")?.strip_suffix("_buckets")?;
        Some((name.to_owned(), value.split(',').filter_map(bucket).collect()))
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_server_are_0_where_all_is_well() {
        let cases = [
            ("aof_last_write_status:ok", [0, 0]),
            ("aof_last_write_status:err\nerrorstat_NOREPLICAS:count=7", [7, 1]),
            ("aof_last_bgrewrite_status:err", [0, 1]),
        ];
        for (info, expected) in cases {
            let fields = server_fields(&Fields::parse(info)).map(|(_, value)| value);
            assert_eq!(fields, expected, "{info}");
        }
    }
}
