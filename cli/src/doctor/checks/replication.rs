//! Checks of replicas and failover.

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

/// Sentinel and cluster need about this long to replace a primary, unless configured otherwise.
const FAILOVER_MS: i64 = 10_000;

/// Settings that must be the same on all servers: a replica can become the primary, and a quorum is as good as its majority.
const SHARED_SETTINGS: [&str; 13] = [
    "dlock.max-lease-ms",
    "dlock.startup-grace-ms",
    "dlock.failover-grace-ms",
    "dlock.max-waiters-per-lock",
    "dlock.max-holders",
    "dlock.deadlock-detection",
    "dlock.allow-eviction",
    "dlock.keep-fence",
    "dlock.quorum",
    "min-replicas-to-write",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
];

pub fn role(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "role";
    facts
        .is_replica()
        .then(|| match facts.info.get("master_link_status") {
            "up" => Finding::ok(CHECK, "replica, connected to its primary"),
            _ => Finding::bad(CHECK, "replica, disconnected from its primary"),
        })
}

pub fn replicas(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "replicas";
    if facts.is_replica() {
        return None;
    }
    let needed = u64::try_from(facts.setting("min-replicas-to-write")?).unwrap_or_default();
    let in_sync = facts.info.number("min_slaves_good_slaves");
    let in_sync = in_sync.unwrap_or_else(|| facts.replicas());
    if needed > in_sync {
        let message = format!("{in_sync} in sync, min-replicas-to-write is {needed}");
        return Some(Finding::bad("replicas: too few", message));
    }
    let (with_grant, online) = (facts.min_sync_replicas(), facts.replicas());
    if with_grant > online {
        let message = format!("{online} connected, dlock.min-sync-replicas is {with_grant}");
        return Some(Finding::bad("replicas: too few for grants", message));
    }
    let is_large_cluster = facts.is_cluster() && facts.cluster.number("cluster_size") > Some(1);
    Some(match facts.replicas() {
        0 if is_large_cluster => Finding::bad("replicas: cluster", "none"),
        0 => Finding::bad(CHECK, "none"),
        n => Finding::ok(CHECK, n.to_string()),
    })
}

pub fn min_replicas(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "isolated primary";
    // A cluster node stops on its own after the node timeout.
    if facts.is_replica() || facts.is_cluster() || facts.replicas() == 0 {
        return None;
    }
    if facts.setting("min-replicas-to-write")? == 0 {
        return Some(Finding::bad(CHECK, "min-replicas-to-write is 0"));
    }
    let lag_s = facts.setting("min-replicas-max-lag")?;
    let down_after = facts.down_after_ms.map_or(String::new(), |ms| {
        format!(", and Sentinel considers a primary down after {ms} ms")
    });
    let failover_ms = facts.down_after_ms.unwrap_or(FAILOVER_MS);
    if lag_s == 0 || lag_s.saturating_mul(1000) >= failover_ms {
        let message = format!("min-replicas-max-lag is {lag_s} s{down_after}");
        return Some(Finding::bad("isolated primary: lag", message));
    }
    let message = format!("stops granting locks after {lag_s} s");
    Some(Finding::ok(CHECK, message))
}

/// Compares with the first server of the deployment whose settings are known.
pub fn settings_differ(facts: &Facts, deployment: &[Facts]) -> Option<Finding> {
    let first = deployment.iter().find(|facts| facts.has_config())?;
    if !facts.has_config() {
        return None;
    }
    let differs = |name: &&str| {
        let (here, there) = (facts.config.get(name), first.config.get(name));
        (here != there).then(|| format!("{name} is {here} here and {there} on {}", first.server))
    };
    let differing: Vec<String> = SHARED_SETTINGS.iter().filter_map(differs).collect();
    (!differing.is_empty()).then(|| Finding::bad("settings differ", differing.join(", ")))
}
