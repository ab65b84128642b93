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
    if grace_ms == 0 {
        return Some(Finding::warning(
            CHECK,
            "dlock.failover-grace-ms is 0",
            "after an unplanned failover, locks granted just before it may be granted again to others",
            "set dlock.failover-grace-ms to the longest lease, on the primary and all replicas; it costs nothing until \
             a failover",
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
    let format = |ms| duration::format(Duration::from_millis(ms));
    let reason = if grace_ms < longest_ms {
        format!("a current lease has {} left", format(longest_ms))
    } else if grace_ms < max_lease_ms {
        format!("dlock.max-lease-ms allows leases of {}", format(max_lease_ms))
    } else {
        return None;
    };
    Some(Finding::warning(
        check,
        format!("{}, but {reason}", format(grace_ms)),
        "a holder whose lock was lost in a crash may work on after the grace period, while others get the lock",
        "set the grace period and dlock.max-lease-ms to the longest lease that you use",
    ))
}

fn format_grace(grace_ms: i64) -> String {
    match u64::try_from(grace_ms) {
        Ok(ms) => duration::format(Duration::from_millis(ms)),
        Err(_) => "as long as the longest lease".to_owned(),
    }
}

pub fn running(facts: &Facts) -> Option<Finding> {
    let left_ms = facts
        .info
        .number("dlock_grace_left_ms")
        .filter(|&left_ms| left_ms > 0)?;
    let left = duration::format(Duration::from_millis(left_ms));
    Some(Finding::warning(
        "grace period",
        format!("running for another {left}"),
        "no locks are granted until it ends: requests with BLOCK wait, others fail with GRACE",
        "wait. Lowering dlock.startup-grace-ms or dlock.failover-grace-ms shortens it, 0 ends it at once: then locks that \
         a crash or failover has lost may have two holders",
    ))
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
    (!graces.is_empty()).then(|| {
        Finding::warning(
            "long grace",
            graces.join("; "),
            "after a start or a failover, no locks are granted for that long",
            "lower dlock.max-lease-ms to the longest lease that you use, and the grace period to the same. CONFIG SET also \
             shortens one that runs, and 0 ends it at once",
        )
    })
}
