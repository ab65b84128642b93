//! Checks of servers that share locks by majority: the conditions of the quorum's guarantee.

use super::server::CLOCK_TOLERANCE_MS;
use crate::doctor::facts::Facts;
use crate::doctor::finding::{Finding, Level};
use crate::duration;

/// All findings about one of the servers.
pub fn check(facts: &Facts, servers: &[Facts]) -> Vec<Finding> {
    let mut findings = super::check(facts, servers);
    // There, a replica is what saves locks. Here, it loses them.
    findings.retain(|finding| finding.check != "replicas");
    for finding in findings.iter_mut().filter(|finding| finding.level > Level::Note) {
        finding.level = match finding.check {
            "persistence" | "startup grace" => Level::Problem,
            "reachability" => Level::Warning,
            _ => finding.level,
        };
    }
    if facts.has_module() && facts.has_config() {
        findings.extend([enabled(facts), independence(facts)]);
        findings.extend(keep_fence(facts));
    }
    findings
}

/// The findings about the servers as a whole.
pub fn together(servers: &[Facts]) -> Vec<Finding> {
    let all = [number(servers), majority(servers)];
    all.into_iter()
        .chain(duplicates(servers))
        .chain(clocks(servers))
        .collect()
}

fn enabled(facts: &Facts) -> Finding {
    const CHECK: &str = "quorum";
    match facts.is_enabled("dlock.quorum") {
        true => Finding::ok(CHECK, "dlock.quorum is yes"),
        false => Finding::bad(CHECK, "dlock.quorum is no"),
    }
}

fn independence(facts: &Facts) -> Finding {
    const CHECK: &str = "independence";
    let message = if facts.is_cluster() {
        "a node of a cluster".to_owned()
    } else if facts.is_replica() {
        "a replica".to_owned()
    } else if facts.replicas() > 0 {
        format!("{} replicas", facts.replicas())
    } else {
        return Finding::ok(CHECK, "no replicas, no cluster");
    };
    Finding::bad(CHECK, message)
}

fn keep_fence(facts: &Facts) -> Option<Finding> {
    let is_forgotten = facts.config.get("dlock.keep-fence") == "no";
    is_forgotten.then(|| Finding::bad("fences", "dlock.keep-fence is no"))
}

fn number(servers: &[Facts]) -> Finding {
    const CHECK: &str = "number of servers";
    let count = servers.len();
    let may_fail = count.saturating_sub(1) / 2;
    let message = format!("{count}: {may_fail} may fail");
    match count {
        ..3 => Finding::bad(CHECK, count.to_string()),
        _ if count.is_multiple_of(2) => Finding::bad("number of servers: even", message),
        _ => Finding::ok(CHECK, message),
    }
}

fn majority(servers: &[Facts]) -> Finding {
    const CHECK: &str = "majority";
    let is_granting = |facts: &&Facts| {
        let grace_ms = facts.info.number("dlock_grace_left_ms");
        facts.has_module() && grace_ms.is_none_or(|left_ms| left_ms == 0)
    };
    let granting = servers.iter().filter(is_granting).count();
    let (count, needed) = (servers.len(), servers.len() / 2 + 1);
    let message = format!("{granting} of {count} servers can grant locks, {needed} are needed");
    match granting >= needed {
        true => Finding::ok(CHECK, message),
        false => Finding::bad(CHECK, message),
    }
}

/// A server that is named twice votes twice.
fn duplicates(servers: &[Facts]) -> Option<Finding> {
    let id = |facts: &Facts| facts.info.get("run_id").to_owned();
    let is_duplicate = |(index, facts): &(usize, &Facts)| {
        !id(facts).is_empty() && servers[..*index].iter().any(|other| id(other) == id(facts))
    };
    let (_, facts) = servers.iter().enumerate().find(is_duplicate)?;
    Some(Finding::bad("votes", format!("{} is named twice", facts.server)))
}

/// Fences rise across an empty restart only if no clock is behind another by more than the grace period.
fn clocks(servers: &[Facts]) -> Option<Finding> {
    const CHECK: &str = "clocks";
    let ahead_ms = || servers.iter().filter_map(|facts| facts.clock_ahead_ms);
    let apart_ms = ahead_ms().max()?.abs_diff(ahead_ms().min()?);
    let graces = servers.iter().filter_map(startup_grace_ms);
    let grace_ms = graces.min().unwrap_or_default().max(CLOCK_TOLERANCE_MS);
    let apart = duration::format_ms(apart_ms);
    if apart_ms < grace_ms {
        return Some(Finding::ok(CHECK, format!("at most {apart} apart")));
    }
    let allowed = duration::format_ms(grace_ms);
    Some(Finding::bad(
        CHECK,
        format!("{apart} apart, {allowed} is allowed"),
    ))
}

fn startup_grace_ms(facts: &Facts) -> Option<u64> {
    let setting = facts.setting("dlock.startup-grace-ms")?;
    let max_lease = || facts.setting("dlock.max-lease-ms");
    u64::try_from(if setting < 0 { max_lease()? } else { setting }).ok()
}
