//! From facts to findings. Pure.

use std::time::Duration;

use super::facts::Facts;
use super::finding::Finding;
use super::finding::Level::{Note, Problem, Warning};
use crate::span;

/// Sentinel and cluster take about so long to replace a primary, unless they are told to be faster.
const FAILOVER_S: i64 = 10;
/// Clocks that are kept differ by less.
const CLOCK_TOLERANCE_MS: u64 = 1_000;
/// The oldest servers that have the API of the module.
const OLDEST_REDIS: u64 = 7;
const OLDEST_VALKEY: u64 = 8;

type Check = fn(&Facts) -> Option<Finding>;

/// For each server with the module.
const CHECKS: &[Check] = &[
    version,
    role,
    rights,
    unasked,
    settings,
    eviction,
    memory,
    persistence,
    log,
    startup_grace,
    replicas,
    isolation,
    failover_grace,
    grace,
    longest_lease,
    timers,
    clock,
    cluster,
    renewals,
];

/// All findings about one server of a deployment.
pub fn check(facts: &Facts, deployment: &[Facts]) -> Vec<Finding> {
    if let Some(why) = &facts.out_of_reach {
        return vec![Finding::bad(
            Problem,
            "reach",
            why,
            "nothing is known of it: a primary that has gone serves no locks, a replica cannot take over",
            "see whether it runs, and whether it can be reached from here by that address",
        )];
    }
    if facts.info.0.is_empty() {
        return vec![Finding::bad(
            Warning,
            "info",
            "this user may not use INFO",
            "hardly anything can be checked",
            "run dlock doctor as a user with +info +config|get +module|list +cluster|info +time +scan",
        )];
    }
    let module = module(facts, deployment);
    if !facts.has_module() {
        return vec![module];
    }
    let checks = CHECKS.iter().filter_map(|check| check(facts));
    std::iter::once(module).chain(checks).collect()
}

fn module(facts: &Facts, deployment: &[Facts]) -> Finding {
    const CHECK: &str = "module";
    if !facts.has_module() {
        return Finding::bad(
            Problem,
            CHECK,
            "the server does not have it",
            "it grants no locks; a replica without it cannot follow, and would not know the locks when promoted",
            "add `loadmodule /path/to/libdlock.so` to its configuration and restart it",
        );
    }
    let versions = deployment.iter().filter_map(|facts| facts.module_version);
    let newest = versions.max();
    let version = facts
        .module_version_text()
        .unwrap_or_else(|| "of an unknown version".to_owned());
    if facts.module_version < newest && facts.module_version.is_some() {
        return Finding::bad(
            Warning,
            CHECK,
            format!("dlock {version} here, a newer one elsewhere"),
            "a server never reads data of a newer encoding than it knows: it would stop following, or not start",
            "bring all servers to the same version, replicas first",
        );
    }
    Finding::good(CHECK, format!("dlock {version}"))
}

fn version(facts: &Facts) -> Option<Finding> {
    let oldest = if facts.is_valkey() {
        OLDEST_VALKEY
    } else {
        OLDEST_REDIS
    };
    if facts.major_version()? < oldest {
        return Some(Finding::bad(
            Problem,
            "version",
            facts.version_text(),
            "the module is not tested with it",
            "use Redis 7.0 or later, or Valkey 8.0 or later",
        ));
    }
    Some(Finding::good("version", facts.version_text()))
}

fn role(facts: &Facts) -> Option<Finding> {
    if !facts.is_replica() {
        return None;
    }
    if facts.info.get("master_link_status") == "up" {
        return Some(Finding::good("role", "a replica that follows its primary"));
    }
    Some(Finding::bad(
        Warning,
        "role",
        "a replica that is cut off from its primary",
        "it does not know what is granted now; promoted, it would grant the same locks again",
        "see its log, and the network between the two",
    ))
}

fn rights(facts: &Facts) -> Option<Finding> {
    if facts.forbidden.is_empty() {
        return Some(Finding::good(
            "rights",
            "this user may use all commands of the module",
        ));
    }
    let what = format!("this user may not use {}", facts.forbidden.join(", "));
    let needed = ["DLOCK.ACQUIRE", "DLOCK.RELEASE", "DLOCK.EXTEND"];
    let level = if facts.forbidden.iter().any(|command| needed.contains(command)) {
        Problem
    } else {
        Note
    };
    Some(Finding::bad(
        level,
        "rights",
        what,
        "without ACQUIRE, RELEASE and EXTEND no lock can be used; without OWNER and INFO none can be looked at",
        "ACL SETUSER name +dlock.acquire +dlock.release +dlock.extend +dlock.owner +dlock.info, and ~pattern for the keys",
    ))
}

fn unasked(facts: &Facts) -> Option<Finding> {
    (!facts.unasked.is_empty()).then(|| {
        Finding::bad(
            Warning,
            "not checked",
            format!("this user may not use {}", facts.unasked.join(", ")),
            "TIME tells the clock, MODULE LIST the module's version, SCAN the longest lease, CLUSTER INFO the cluster: \
             nothing is found of these",
            "run dlock doctor as a user with +time +module|list +scan +cluster|info",
        )
    })
}

fn settings(facts: &Facts) -> Option<Finding> {
    (!facts.knows_settings()).then(|| {
        Finding::bad(
            Warning,
            "settings",
            "this user may not use CONFIG GET",
            "eviction, persistence, replicas, graces and timers are not checked",
            "run dlock doctor as a user with +config|get",
        )
    })
}

fn eviction(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "eviction";
    let limit = facts.setting("maxmemory")?;
    let policy = facts.settings.get("maxmemory-policy");
    if limit == 0 || !policy.starts_with("allkeys-") {
        return Some(Finding::good(
            CHECK,
            format!("no lock is evicted (maxmemory-policy {policy})"),
        ));
    }
    let what = format!("maxmemory-policy is {policy}");
    if facts.is_set("dlock.allow-eviction") {
        return Some(Finding::bad(
            Problem,
            CHECK,
            what + " and dlock.allow-eviction is yes",
            "the server may throw held locks away: two owners then hold the same lock",
            "CONFIG SET maxmemory-policy noeviction (or volatile-lru, ...), and dlock.allow-eviction no",
        ));
    }
    Some(Finding::bad(
        Problem,
        CHECK,
        what,
        "the server could evict locks, so it grants none: new owners get EVICTABLE",
        "CONFIG SET maxmemory-policy noeviction (or volatile-lru, ...)",
    ))
}

fn memory(facts: &Facts) -> Option<Finding> {
    let limit = u64::try_from(facts.setting("maxmemory")?)
        .ok()
        .filter(|&limit| limit > 0)?;
    let used = facts.info.number("used_memory")?;
    let percent = used.saturating_mul(100) / limit;
    (percent >= 90).then(|| {
        Finding::bad(
            Warning,
            "memory",
            format!("{percent} % of maxmemory are used"),
            "when it is full, ACQUIRE answers OOM (RELEASE and EXTEND work)",
            "raise maxmemory, or give locks a server of their own",
        )
    })
}

fn persistence(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "persistence";
    if !facts.knows_settings() {
        return None;
    }
    let log = facts.is_set("appendonly");
    let what = match (log, facts.settings.get("appendfsync")) {
        (true, "always") if facts.is_set("no-appendfsync-on-rewrite") => {
            return Some(Finding::bad(
                Warning,
                CHECK,
                "appendfsync always, but no-appendfsync-on-rewrite is yes",
                "while the log is rewritten, what is answered may be lost by a crash",
                "CONFIG SET no-appendfsync-on-rewrite no",
            ));
        }
        (true, "always") => {
            return Some(Finding::good(
                CHECK,
                "a crash loses nothing that was answered (appendfsync always)",
            ));
        }
        (true, fsync) => format!("a crash loses the last grants (appendfsync {fsync})"),
        (false, _) if facts.settings.get("save").is_empty() => "a restart forgets all locks".to_owned(),
        (false, _) => "a crash forgets all locks since the last snapshot".to_owned(),
    };
    if facts.setting("dlock.startup-grace-ms")? != 0 {
        return Some(Finding::good(
            CHECK,
            format!("{what}; dlock.startup-grace-ms makes up for it"),
        ));
    }
    Some(Finding::bad(
        if log { Warning } else { Problem },
        CHECK,
        what + ", and there is no grace after a start",
        "after it, others may get locks that their holders believe to have still",
        "set dlock.startup-grace-ms to the longest lease, or appendonly yes and appendfsync always",
    ))
}

fn log(facts: &Facts) -> Option<Finding> {
    let failed =
        facts.info.get("aof_last_write_status") == "err" || facts.info.get("rdb_last_bgsave_status") == "err";
    failed.then(|| {
        Finding::bad(
            Problem,
            "disk",
            "the last write of the log, or the last snapshot, has failed",
            "the server refuses to grant (MISCONF), or a restart forgets locks",
            "see the server's log: the disk may be full",
        )
    })
}

/// Whether a grace is as long as it has to be.
fn grace_is_too_short(facts: &Facts, grace_ms: i64) -> bool {
    let known = facts.longest_lease.as_millis();
    u128::try_from(grace_ms).is_ok_and(|grace_ms| grace_ms > 0 && grace_ms < known)
}

fn startup_grace(facts: &Facts) -> Option<Finding> {
    let grace_ms = facts.setting("dlock.startup-grace-ms")?;
    grace_is_too_short(facts, grace_ms).then(|| too_short("startup grace", grace_ms, facts.longest_lease))
}

fn too_short(check: &'static str, grace_ms: i64, lease: Duration) -> Finding {
    Finding::bad(
        Warning,
        check,
        format!(
            "{grace_ms} ms, but a lease that runs now has {} left",
            span::show(lease)
        ),
        "a grace has to be at least the longest lease, or a holder that was forgotten outlives it",
        "set it to the longest lease that is used, and dlock.max-lease-ms to the same",
    )
}

fn replicas(facts: &Facts) -> Option<Finding> {
    if facts.is_replica() {
        return None;
    }
    let needed = u64::try_from(facts.setting("min-replicas-to-write")?).unwrap_or_default();
    let good = facts
        .info
        .number("min_slaves_good_slaves")
        .unwrap_or_else(|| facts.replicas());
    if needed > good {
        return Some(Finding::bad(
            Problem,
            "replicas",
            format!("{good} in step, min-replicas-to-write is {needed}"),
            "nothing is granted, released or renewed (NOREPLICAS)",
            "bring the replicas back; see INFO replication",
        ));
    }
    Some(match facts.replicas() {
        0 => Finding::bad(
            Note,
            "replicas",
            "none",
            "when this machine is lost, so are its locks, and nobody takes over",
            "",
        ),
        n => Finding::good("replicas", format!("{n}")),
    })
}

fn isolation(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "isolated primary";
    // In a cluster, the node timeout stops a primary that is cut off.
    if facts.is_replica() || facts.is_cluster() || facts.replicas() == 0 {
        return None;
    }
    if facts.setting("min-replicas-to-write")? == 0 {
        return Some(Finding::bad(
            Warning,
            CHECK,
            "min-replicas-to-write is 0",
            "a primary that is cut off goes on granting while another one is promoted; only fences help then",
            "set min-replicas-to-write 1, and min-replicas-max-lag well below the time that a failover takes",
        ));
    }
    let lag_s = facts.setting("min-replicas-max-lag")?;
    if lag_s == 0 || lag_s >= FAILOVER_S {
        return Some(Finding::bad(
            Warning,
            CHECK,
            format!("min-replicas-max-lag is {lag_s} s"),
            "a primary that is cut off may go on granting for so long after another one was promoted (0: for ever)",
            "set min-replicas-max-lag well below the time that a failover takes: 3, for instance",
        ));
    }
    Some(Finding::good(CHECK, format!("it stops granting after {lag_s} s")))
}

/// A promoted replica goes by its own setting, so replicas are asked too.
fn failover_grace(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "failover grace";
    if !facts.is_replica() && facts.replicas() == 0 {
        return None;
    }
    let grace_ms = facts.setting("dlock.failover-grace-ms")?;
    if grace_ms == 0 {
        return Some(Finding::bad(
            Warning,
            CHECK,
            "dlock.failover-grace-ms is 0",
            "after an unplanned failover, others may get locks that were granted just before it",
            "set dlock.failover-grace-ms to the longest lease, on primary and replicas; it is free as long as nothing fails",
        ));
    }
    if grace_is_too_short(facts, grace_ms) {
        return Some(too_short(CHECK, grace_ms, facts.longest_lease));
    }
    Some(Finding::good(CHECK, told(grace_ms)))
}

fn told(grace_ms: i64) -> String {
    match u64::try_from(grace_ms) {
        Ok(ms) => span::show(Duration::from_millis(ms)),
        Err(_) => "the longest lease".to_owned(),
    }
}

fn grace(facts: &Facts) -> Option<Finding> {
    let left_ms = facts
        .info
        .number("dlock_grace_left_ms")
        .filter(|&left_ms| left_ms > 0)?;
    let left = span::show(Duration::from_millis(left_ms));
    Some(Finding::bad(
        Warning,
        "grace",
        format!("one is running, for {left} more"),
        "nobody gets a lock until it ends: requests with BLOCK wait, others get GRACE",
        "wait. If it is too long for you, lower the leases first and the grace then",
    ))
}

fn longest_lease(facts: &Facts) -> Option<Finding> {
    const DAY_MS: i64 = 86_400_000;
    let graces = ["dlock.startup-grace-ms", "dlock.failover-grace-ms"];
    let by_lease = graces.iter().any(|name| facts.setting(name) == Some(-1));
    let max_lease_ms = facts.setting("dlock.max-lease-ms")?;
    (by_lease && max_lease_ms >= DAY_MS).then(|| {
        Finding::bad(
            Warning,
            "longest lease",
            format!("a grace is -1, and dlock.max-lease-ms is {}", told(max_lease_ms)),
            "after a start or a failover nobody gets a lock for so long",
            "lower dlock.max-lease-ms to the longest lease that you use",
        )
    })
}

fn timers(facts: &Facts) -> Option<Finding> {
    let hz = facts.setting("hz")?;
    if hz < 10 {
        return Some(Finding::bad(
            Warning,
            "timers",
            format!("hz is {hz}"),
            "the end of a lease is noticed late: waiters are served later than 100 ms after it",
            "CONFIG SET hz 10",
        ));
    }
    Some(Finding::good("timers", format!("hz {hz}")))
}

fn clock(facts: &Facts) -> Option<Finding> {
    let ahead_ms = facts.clock_ahead_ms?;
    if ahead_ms.unsigned_abs() <= CLOCK_TOLERANCE_MS {
        return Some(Finding::good("clock", "as here"));
    }
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let by = span::show(Duration::from_millis(ahead_ms.unsigned_abs()));
    Some(Finding::bad(
        Warning,
        "clock",
        format!("{by} {direction} this machine's"),
        "leases do not care; but fences rise across servers and restarts only if no clock falls behind by more than the time between",
        "keep the clocks of all servers by NTP, and see whether it is this machine's that is wrong",
    ))
}

fn cluster(facts: &Facts) -> Option<Finding> {
    if !facts.is_cluster() || facts.cluster.0.is_empty() {
        return None;
    }
    let assigned = facts.cluster.get("cluster_slots_assigned");
    if facts.cluster.get("cluster_state") != "ok" || assigned != "16384" {
        return Some(Finding::bad(
            Problem,
            "cluster",
            format!(
                "state {}, {assigned} of 16384 slots served",
                facts.cluster.get("cluster_state")
            ),
            "locks in slots that nobody serves cannot be used (CLUSTERDOWN)",
            "see redis-cli --cluster check, and bring the missing nodes back",
        ));
    }
    Some(Finding::good(
        "cluster",
        format!(
            "{} nodes, all slots served",
            facts.cluster.get("cluster_known_nodes")
        ),
    ))
}

fn renewals(facts: &Facts) -> Option<Finding> {
    let expired = facts.info.number("dlock_expired")?;
    let released = facts.info.number("dlock_released")?;
    (expired >= 10 && expired > released / 10).then(|| {
        Finding::bad(
            Warning,
            "renewals",
            format!("{expired} holders let their lease end, {released} gave their lock back"),
            "clients vanish, or leases are shorter than the work under them: others got those locks meanwhile",
            "renew leases while the work goes on (dlock run and the Rust client do), or make them longer",
        )
    })
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
