//! Checks of grace periods and the leases that they must cover.

use std::time::Duration;

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::duration;

pub fn startup_grace(facts: &Facts) -> Option<Finding> {
    too_short(facts, "startup grace", "dlock.startup-grace-ms")
}

/// Checked on replicas too: after a promotion, the new primary uses its own setting.
pub fn failover_grace(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "failover grace";
    const SETTING: &str = "dlock.failover-grace-ms";
    if !facts.is_replica() && facts.replicas() == 0 {
        return None;
    }
    let grace_ms = facts.setting(SETTING)?;
    let replicas = facts.replicas();
    let with_grant = facts.min_sync_replicas();
    if grace_ms == 0 && with_grant > 0 && with_grant >= replicas {
        return Some(Finding::ok(CHECK, "none needed: all replicas have each grant"));
    }
    if grace_ms == 0 && with_grant > 0 {
        let message = format!("{SETTING} is 0, and only {with_grant} of {replicas} replicas have each grant");
        return Some(Finding::bad("failover grace: none", message));
    }
    if grace_ms == 0 {
        return Some(Finding::bad(
            "failover grace: none",
            "dlock.failover-grace-ms is 0",
        ));
    }
    too_short(facts, CHECK, SETTING).or_else(|| Some(Finding::ok(CHECK, format_grace(grace_ms))))
}

/// A fixed grace period must cover the longest lease: the longest that is allowed, and those granted before the limit
/// was lowered.
fn too_short(facts: &Facts, check: &'static str, setting: &str) -> Option<Finding> {
    let grace_ms = u64::try_from(facts.setting(setting)?).ok().filter(|&ms| ms > 0)?;
    let longest_ms = u64::try_from(facts.longest_lease.as_millis()).unwrap_or(u64::MAX);
    let max_lease_ms = u64::try_from(facts.setting("dlock.max-lease-ms")?).ok()?;
    let reason = if grace_ms < longest_ms {
        format!("a current lease has {} left", duration::format_ms(longest_ms))
    } else if grace_ms < max_lease_ms {
        let longest = duration::format_ms(max_lease_ms);
        format!("dlock.max-lease-ms allows leases of {longest}")
    } else {
        return None;
    };
    let message = format!("{}, but {reason}", duration::format_ms(grace_ms));
    Some(Finding::bad(check, message))
}

fn format_grace(grace_ms: i64) -> String {
    let ms = u64::try_from(grace_ms);
    ms.map_or_else(|_| "as long as the longest lease".to_owned(), duration::format_ms)
}

pub fn running(facts: &Facts) -> Option<Finding> {
    let left_ms = facts.info.number("dlock_grace_left_ms").filter(|&ms| ms > 0)?;
    let message = format!("running for another {}", duration::format_ms(left_ms));
    Some(Finding::bad("grace period", message))
}

/// Told before a start or a failover begins one.
pub fn long(facts: &Facts) -> Option<Finding> {
    const LONG: Duration = Duration::from_secs(120);
    let max_lease = Duration::from_millis(u64::try_from(facts.setting("dlock.max-lease-ms")?).ok()?);
    let long = |name: &str| {
        let grace_ms = facts.setting(name)?;
        let grace = u64::try_from(grace_ms).map_or(max_lease.max(facts.longest_lease), Duration::from_millis);
        (grace > LONG).then(|| format!("{name} is {grace_ms}, which is {}", duration::format(grace)))
    };
    let graces = ["dlock.startup-grace-ms", "dlock.failover-grace-ms"];
    let graces: Vec<String> = graces.into_iter().filter_map(long).collect();
    (!graces.is_empty()).then(|| Finding::bad("long grace", graces.join("; ")))
}
