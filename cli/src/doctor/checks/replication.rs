//! Checks of replicas and failover.

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

/// Sentinel and cluster need about this long to replace a primary, unless configured otherwise.
const FAILOVER_MS: i64 = 10_000;

/// Settings that must be the same on all servers: a replica can become the primary, and a quorum is as good as its majority.
const SHARED_SETTINGS: [&str; 12] = [
    "dlock.max-lease-ms",
    "dlock.startup-grace-ms",
    "dlock.failover-grace-ms",
    "dlock.max-waiters-per-lock",
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
    if !facts.is_replica() {
        return None;
    }
    if facts.info.get("master_link_status") == "up" {
        return Some(Finding::ok("role", "replica, connected to its primary"));
    }
    Some(Finding::warning(
        "role",
        "replica, disconnected from its primary",
        "it misses current grants: after a promotion it could grant the same locks again",
        "see its log, and check the network between the two",
    ))
}

pub fn replicas(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "replicas";
    const NONE: &str = "if this machine fails, its locks are lost and no server takes over";
    if facts.is_replica() {
        return None;
    }
    let needed = u64::try_from(facts.setting("min-replicas-to-write")?).unwrap_or_default();
    let in_sync = facts
        .info
        .number("min_slaves_good_slaves")
        .unwrap_or_else(|| facts.replicas());
    if needed > in_sync {
        return Some(Finding::problem(
            CHECK,
            format!("{in_sync} in sync, min-replicas-to-write is {needed}"),
            "all writes fail with NOREPLICAS: no lock is granted, renewed or released",
            "bring the replicas back; see INFO replication",
        ));
    }
    Some(match facts.replicas() {
        0 if facts.is_cluster() && facts.cluster.number("cluster_size") > Some(1) => Finding::warning(
            CHECK,
            "none",
            NONE,
            "add a replica with redis-cli --cluster add-node --cluster-slave",
        ),
        0 => Finding::note(CHECK, "none", NONE),
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
        return Some(Finding::warning(
            CHECK,
            "min-replicas-to-write is 0",
            "split-brain: a partitioned primary keeps granting locks after another one was promoted; only fencing tokens \
             protect then",
            "set min-replicas-to-write 1, and min-replicas-max-lag well below the duration of a failover",
        ));
    }
    let lag_s = facts.setting("min-replicas-max-lag")?;
    let down_after = facts.down_after_ms.map_or(String::new(), |ms| {
        format!(", and Sentinel takes a primary for down after {ms} ms")
    });
    let failover_ms = facts.down_after_ms.unwrap_or(FAILOVER_MS);
    if lag_s == 0 || lag_s.saturating_mul(1000) >= failover_ms {
        return Some(Finding::warning(
            CHECK,
            format!("min-replicas-max-lag is {lag_s} s{down_after}"),
            "split-brain: a partitioned primary may keep granting locks for that long, even after another one was \
             promoted (0: forever)",
            "set min-replicas-max-lag well below the duration of a failover, for instance to 3 with Sentinel's \
             down-after-milliseconds 5000",
        ));
    }
    Some(Finding::ok(
        CHECK,
        format!("stops granting locks after {lag_s} s"),
    ))
}

/// Compares with the first server of the deployment whose settings are known.
pub fn settings_differ(facts: &Facts, deployment: &[Facts]) -> Option<Finding> {
    let first = deployment.iter().find(|facts| facts.has_config())?;
    if !facts.has_config() {
        return None;
    }
    let differing: Vec<String> = SHARED_SETTINGS
        .iter()
        .filter(|name| facts.config.get(name) != first.config.get(name))
        .map(|name| {
            format!(
                "{name} is {} here and {} on {}",
                facts.config.get(name),
                first.config.get(name),
                first.server
            )
        })
        .collect();
    (!differing.is_empty()).then(|| {
        Finding::warning(
            "settings differ",
            differing.join(", "),
            "locks behave differently after a failover, or on another server",
            "use the same settings on all servers",
        )
    })
}
