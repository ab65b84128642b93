//! Checks of the server itself: versions, permissions, memory, limits, timers, clock.

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
        return Finding::bad(CHECK, "the module is not loaded");
    }
    let newest = deployment.iter().filter_map(|facts| facts.module_version).max();
    let version = facts.module_version_text();
    let version = version.unwrap_or_else(|| "unknown version".to_owned());
    if facts.module_version < newest && facts.module_version.is_some() {
        return Finding::bad(
            "module: older",
            format!("dlock {version}, older than on another server"),
        );
    }
    Finding::ok(CHECK, format!("dlock {version}"))
}

pub fn version(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "version";
    let oldest = if facts.is_valkey() { MIN_VALKEY } else { MIN_REDIS };
    let is_older = facts.version_numbers()?.0 < oldest;
    let finding = if is_older { Finding::bad } else { Finding::ok };
    Some(finding(CHECK, facts.version_text()))
}

pub fn permissions(facts: &Facts) -> Option<Finding> {
    let denied = &facts.denied_commands;
    if denied.is_empty() {
        let message = "the user has permission for all DLOCK commands";
        return Some(Finding::ok("permissions", message));
    }
    let is_denied = |command: &&str| denied.contains(command);
    let id = if ["DLOCK.ACQUIRE", "DLOCK.RELEASE", "DLOCK.EXTEND"]
        .iter()
        .any(is_denied)
    {
        "permissions: use"
    } else if denied.contains(&"DLOCK.GRANTS") {
        "permissions: wait"
    } else {
        "permissions: inspect"
    };
    let message = format!("the user has no permission for {}", denied.join(", "));
    Some(Finding::bad(id, message))
}

pub fn denied_queries(facts: &Facts) -> Option<Finding> {
    let message = || {
        format!(
            "the user has no permission for {}",
            facts.denied_queries.join(", ")
        )
    };
    (!facts.denied_queries.is_empty()).then(|| Finding::bad("not checked", message()))
}

pub fn denied_locks(facts: &Facts) -> Option<Finding> {
    let message = || format!("the user has no permission to read {} locks", facts.denied_locks);
    (facts.denied_locks > 0).then(|| Finding::bad("longest lease", message()))
}

pub fn config(facts: &Facts) -> Option<Finding> {
    const MESSAGE: &str = "the user has no permission for CONFIG GET";
    (!facts.has_config()).then(|| Finding::bad("config", MESSAGE))
}

pub fn eviction(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "eviction";
    let limit = facts.setting("maxmemory")?;
    let policy = facts.config.get("maxmemory-policy");
    if limit == 0 || !policy.starts_with("allkeys-") {
        let message = format!("locks cannot be evicted (maxmemory-policy {policy})");
        return Some(Finding::ok(CHECK, message));
    }
    if facts.is_enabled("dlock.allow-eviction") {
        let message = format!("maxmemory-policy is {policy} and dlock.allow-eviction is yes");
        return Some(Finding::bad("eviction: allowed", message));
    }
    Some(Finding::bad(CHECK, format!("maxmemory-policy is {policy}")))
}

pub fn memory(facts: &Facts) -> Option<Finding> {
    let limit = u64::try_from(facts.setting("maxmemory")?).ok()?;
    let used = facts.info.number("used_memory")?;
    let percent = used.saturating_mul(100).checked_div(limit)?;
    (percent >= 90).then(|| Finding::bad("memory", format!("{percent} % of maxmemory is used")))
}

pub fn clients(facts: &Facts) -> Option<Finding> {
    let limit = facts.setting("maxclients")?;
    let connected = i64::try_from(facts.info.number("connected_clients")?).ok()?;
    let is_nearly_full = connected.saturating_mul(10) >= limit.saturating_mul(9);
    let message = || format!("{connected} connected, maxclients is {limit}");
    (limit < MIN_MAXCLIENTS || is_nearly_full).then(|| Finding::bad("clients", message()))
}

pub fn queue_limit(facts: &Facts) -> Option<Finding> {
    const MESSAGE: &str = "dlock.max-waiters-per-lock is 0";
    (facts.setting("dlock.max-waiters-per-lock")? == 0).then(|| Finding::bad("queue limit", MESSAGE))
}

pub fn timers(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "timers";
    Some(match facts.setting("hz")? {
        hz @ ..10 => Finding::bad(CHECK, format!("hz is {hz}")),
        hz => Finding::ok(CHECK, format!("hz {hz}")),
    })
}

pub fn clock(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "clock";
    let ahead_ms = facts.clock_ahead_ms?;
    if ahead_ms.unsigned_abs() <= CLOCK_TOLERANCE_MS {
        return Some(Finding::ok(CHECK, "in step with this machine's"));
    }
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let by = duration::format_ms(ahead_ms.unsigned_abs());
    Some(Finding::bad(CHECK, format!("{by} {direction} this machine's")))
}

pub fn expired_leases(facts: &Facts) -> Option<Finding> {
    let expired = facts.info.number("dlock_expired")?;
    let released = facts.info.number("dlock_released")?;
    let message = || format!("{expired} leases expired, {released} locks were released");
    (expired >= 10 && expired > released / 10).then(|| Finding::bad("expired leases", message()))
}

pub fn limits(facts: &Facts) -> Option<Finding> {
    let mismatches = facts.info.number("dlock_limit_mismatches")?;
    let message = || format!("{mismatches} requests had another LIMIT than the holders of the lock");
    (mismatches > 0).then(|| Finding::bad("limits", message()))
}
