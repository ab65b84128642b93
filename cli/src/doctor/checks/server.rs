//! Checks of the server itself: versions, permissions, memory, limits, timers, clock.

use std::fmt::Display;
use std::time::Duration;

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::duration;

/// Clocks synchronized by NTP differ by less.
pub(super) const CLOCK_TOLERANCE_MS: u64 = 1_000;
/// The oldest servers with the module API that the module needs.
const MIN_REDIS: u64 = 7;
const MIN_VALKEY: u64 = 8;
/// Every waiter needs a connection.
const MIN_MAXCLIENTS: i64 = 100;

pub fn module(facts: &Facts, deployment: &[Facts]) -> Finding {
    const CHECK: &str = "module";
    if !facts.has_module() {
        return Finding::problem(
            CHECK,
            "the module is not loaded",
            "the server grants no locks; a replica without the module cannot replicate them or take over",
            "add `loadmodule /path/to/libdlock.so` to the configuration and restart the server",
        );
    }
    let newest = deployment.iter().filter_map(|facts| facts.module_version).max();
    let version = facts
        .module_version_text()
        .unwrap_or_else(|| "unknown version".to_owned());
    if facts.module_version < newest && facts.module_version.is_some() {
        return Finding::warning(
            CHECK,
            format!("dlock {version}, older than on another server"),
            "a server rejects data in an encoding newer than its own: replication would break, or a restart fail",
            "upgrade all servers to the same version, replicas first",
        );
    }
    Finding::ok(CHECK, format!("dlock {version}"))
}

pub fn version(facts: &Facts) -> Option<Finding> {
    let oldest = if facts.is_valkey() { MIN_VALKEY } else { MIN_REDIS };
    if facts.major_version()? < oldest {
        return Some(Finding::problem(
            "version",
            facts.version_text(),
            "the module is not tested with this version",
            "use Redis 7.0 or later, or Valkey 8.0 or later",
        ));
    }
    Some(Finding::ok("version", facts.version_text()))
}

pub fn permissions(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "permissions";
    const REMEDY: &str = "ACL SETUSER name +dlock.acquire +dlock.release +dlock.extend +dlock.grants +dlock.owner \
                          +dlock.info ~pattern, with a pattern for the names of the locks";
    if facts.denied_commands.is_empty() {
        return Some(Finding::ok(
            CHECK,
            "the user has permission for all DLOCK commands",
        ));
    }
    let message = format!(
        "the user has no permission for {}",
        facts.denied_commands.join(", ")
    );
    let is_needed = |command: &&str| matches!(*command, "DLOCK.ACQUIRE" | "DLOCK.RELEASE" | "DLOCK.EXTEND");
    let waits = !facts.denied_commands.contains(&"DLOCK.GRANTS");
    Some(if facts.denied_commands.iter().any(is_needed) {
        Finding::problem(
            CHECK,
            message,
            "locks cannot be used without ACQUIRE, RELEASE and EXTEND",
            REMEDY,
        )
    } else if waits {
        Finding::note(CHECK, message, "locks can be used but not inspected")
    } else {
        let impact = "locks can be used, but `dlock run` and the Rust client cannot wait for them (QUEUE)";
        Finding::warning(CHECK, message, impact, REMEDY)
    })
}

pub fn denied_queries(facts: &Facts) -> Option<Finding> {
    (!facts.denied_queries.is_empty()).then(|| {
        Finding::warning(
            "not checked",
            format!("the user has no permission for {}", facts.denied_queries.join(", ")),
            "some checks were skipped: TIME is for the clock, MODULE LIST for the version, SCAN for the longest lease, \
             CLUSTER INFO and NODES for the cluster, MULTI and DISCARD for permissions",
            "run dlock doctor as a user with +time +module|list +scan +cluster|info +cluster|nodes +multi +discard",
        )
    })
}

pub fn denied_locks(facts: &Facts) -> Option<Finding> {
    (facts.denied_locks > 0).then(|| {
        Finding::note(
            "longest lease",
            format!("the user has no permission to read {} locks", facts.denied_locks),
            "their leases are not compared with the grace periods; the permission ~* would allow it",
        )
    })
}

pub fn config(facts: &Facts) -> Option<Finding> {
    (!facts.has_config()).then(|| {
        Finding::warning(
            "config",
            "the user has no permission for CONFIG GET",
            "eviction, persistence, replicas, grace periods, limits and timers were not checked",
            "run dlock doctor as a user with +config|get",
        )
    })
}

pub fn eviction(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "eviction";
    let limit = facts.setting("maxmemory")?;
    let policy = facts.config.get("maxmemory-policy");
    if limit == 0 || !policy.starts_with("allkeys-") {
        return Some(Finding::ok(
            CHECK,
            format!("locks cannot be evicted (maxmemory-policy {policy})"),
        ));
    }
    if facts.is_enabled("dlock.allow-eviction") {
        return Some(Finding::problem(
            CHECK,
            format!("maxmemory-policy is {policy} and dlock.allow-eviction is yes"),
            "the server may evict held locks, and grant them to a second owner",
            "CONFIG SET maxmemory-policy noeviction (or volatile-lru, ...), and dlock.allow-eviction no",
        ));
    }
    Some(Finding::problem(
        CHECK,
        format!("maxmemory-policy is {policy}"),
        "the server could evict locks, so it grants none: requests fail with EVICTABLE",
        "CONFIG SET maxmemory-policy noeviction (or volatile-lru, ...)",
    ))
}

pub fn memory(facts: &Facts) -> Option<Finding> {
    let limit = u64::try_from(facts.setting("maxmemory")?)
        .ok()
        .filter(|&limit| limit > 0)?;
    let used = facts.info.number("used_memory")?;
    let percent = used.saturating_mul(100) / limit;
    (percent >= 90).then(|| {
        Finding::warning(
            "memory",
            format!("{percent} % of maxmemory is used"),
            "once it is full, ACQUIRE fails with OOM (RELEASE and EXTEND work)",
            "raise maxmemory, or use a separate server for locks",
        )
    })
}

pub fn clients(facts: &Facts) -> Option<Finding> {
    let limit = facts.setting("maxclients")?;
    let connected = i64::try_from(facts.info.number("connected_clients")?).ok()?;
    let is_nearly_full = connected.saturating_mul(10) >= limit.saturating_mul(9);
    (limit < MIN_MAXCLIENTS || is_nearly_full).then(|| {
        Finding::warning(
            "clients",
            format!("{connected} connected, maxclients is {limit}"),
            "every waiter needs a connection: once the limit is reached, no client can connect, not even to renew a lease",
            "raise maxclients, and the limit of open files if necessary",
        )
    })
}

pub fn queue_limit(facts: &Facts) -> Option<Finding> {
    (facts.setting("dlock.max-waiters-per-lock")? == 0).then(|| {
        Finding::warning(
            "queue limit",
            "dlock.max-waiters-per-lock is 0",
            "no client can wait for a lock: requests with BLOCK fail with QUEUEFULL",
            "CONFIG SET dlock.max-waiters-per-lock 10000",
        )
    })
}

pub fn deadlock_detection(facts: &Facts) -> Option<Finding> {
    (facts.config.get("dlock.deadlock-detection") == "no").then(|| {
        Finding::note(
            "deadlock detection",
            "dlock.deadlock-detection is no",
            "owners that wait for each other wait until a timeout or the end of a lease",
        )
    })
}

pub fn tls(facts: &Facts) -> Option<Finding> {
    let port = facts.setting("port").filter(|&port| port > 0)?;
    (facts.setting("tls-port")? > 0).then(|| plaintext_port(port))
}

/// Of a server or Sentinel that is reached with TLS.
pub fn plaintext_port(port: impl Display) -> Finding {
    Finding::note(
        "TLS",
        format!("connections without TLS are accepted too, at port {port}"),
        "passwords can be read on the network; with port 0 only TLS is accepted",
    )
}

pub fn timers(facts: &Facts) -> Option<Finding> {
    let hz = facts.setting("hz")?;
    if hz < 10 {
        return Some(Finding::warning(
            "timers",
            format!("hz is {hz}"),
            "expired leases are noticed late, so waiters are granted the lock more than 100 ms after the expiry",
            "CONFIG SET hz 10",
        ));
    }
    Some(Finding::ok("timers", format!("hz {hz}")))
}

pub fn clock(facts: &Facts) -> Option<Finding> {
    let ahead_ms = facts.clock_ahead_ms?;
    if ahead_ms.unsigned_abs() <= CLOCK_TOLERANCE_MS {
        return Some(Finding::ok("clock", "in step with this machine's"));
    }
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let by = duration::format(Duration::from_millis(ahead_ms.unsigned_abs()));
    Some(Finding::warning(
        "clock",
        format!("{by} {direction} this machine's"),
        "leases do not depend on wall clocks, but after a failover to a server whose clock is behind, fencing tokens \
         may decrease",
        "synchronize the clocks of all servers by NTP; this machine's clock may be the wrong one",
    ))
}

pub fn expired_leases(facts: &Facts) -> Option<Finding> {
    let expired = facts.info.number("dlock_expired")?;
    let released = facts.info.number("dlock_released")?;
    (expired >= 10 && expired > released / 10).then(|| {
        Finding::warning(
            "expired leases",
            format!("{expired} leases expired, {released} locks were released"),
            "clients crash, or leases are shorter than the work: others got these locks in the meantime",
            "renew leases during the work (dlock run and the Rust client do), or use longer ones",
        )
    })
}

pub fn limits(facts: &Facts) -> Option<Finding> {
    let mismatches = facts.info.number("dlock_limit_mismatches")?;
    (mismatches > 0).then(|| {
        Finding::warning(
            "limits",
            format!("{mismatches} requests had another LIMIT than the holders of the lock"),
            "the smaller limit counts for all: programs wait for a lock that they expect to share",
            "use the same LIMIT for a lock in all programs",
        )
    })
}
