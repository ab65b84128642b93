//! Reads INFO dlock, and what else stops locks.

use crate::exit::Failure;
use crate::server::{Fields, Node};

/// The counters of one server.
#[derive(Default)]
pub struct ServerStats {
    pub server: String,
    /// The numeric fields of INFO dlock, without their prefix.
    pub fields: Vec<(String, u64)>,
    /// Histograms of durations, by field.
    pub histograms: Vec<(String, Buckets)>,
    /// What the server itself counts or reports, and what stops locks. Only for Prometheus.
    pub server_fields: Vec<(String, u64)>,
    /// `primary` or `replica`.
    pub role: &'static str,
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
    let info = node.info(&["dlock", "replication", "persistence", "errorstats"])?;
    Ok(ServerStats {
        server: node.name.clone(),
        role: match info.get("role") {
            "slave" => "replica",
            _ => "primary",
        },
        fields: numeric_fields(&info),
        histograms: histograms(&info),
        server_fields: server_fields(&info).into(),
        is_down: false,
    })
}

fn server_fields(info: &Fields) -> [(String, u64); 2] {
    let rejected = info.get("errorstat_NOREPLICAS").strip_prefix("count=");
    let rejected = rejected.and_then(|count| count.parse().ok()).unwrap_or(0);
    let statuses = ["aof_last_write_status", "aof_last_bgrewrite_status"];
    let aof_failed = statuses.iter().any(|status| info.get(status) == "err");
    let fields = [("errors_noreplicas", rejected), ("aof_failed", aof_failed.into())];
    fields.map(|(name, value)| (name.to_owned(), value))
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
