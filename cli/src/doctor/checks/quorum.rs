//! Checks of servers that share locks by majority: the conditions of the quorum's guarantee.

use std::time::Duration;

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
    if facts.is_enabled("dlock.quorum") {
        return Finding::ok(CHECK, "dlock.quorum is yes");
    }
    Finding::problem(
        CHECK,
        "dlock.quorum is no",
        "requests with MINFENCE fail here: this server takes no part in the quorum",
        "CONFIG SET dlock.quorum yes, and the same in redis.conf",
    )
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
    Finding::problem(
        CHECK,
        message,
        "a replica that takes over may lack grants that count for a majority: two holders, or a smaller fencing token",
        "run the servers of a quorum without replicas and outside of a cluster; a majority replaces failover",
    )
}

fn keep_fence(facts: &Facts) -> Option<Finding> {
    (facts.config.get("dlock.keep-fence") == "no").then(|| {
        Finding::problem(
            "fences",
            "dlock.keep-fence is no",
            "a restart without locks forgets the last fencing token: later ones may be smaller",
            "CONFIG SET dlock.keep-fence yes, and the same in redis.conf",
        )
    })
}

fn number(servers: &[Facts]) -> Finding {
    const CHECK: &str = "number of servers";
    let count = servers.len();
    if count < 3 {
        return Finding::problem(
            CHECK,
            count.to_string(),
            "locks are lost, or no longer granted, when one server fails",
            "run three, five or seven independent servers, and name all of them",
        );
    }
    let may_fail = (count - 1) / 2;
    if count.is_multiple_of(2) {
        return Finding::warning(
            CHECK,
            format!("{count}: {may_fail} may fail"),
            "with one server less, as many may fail, and each lock takes fewer requests",
            "run three, five or seven servers, and name all of them",
        );
    }
    Finding::ok(CHECK, format!("{count}: {may_fail} may fail"))
}

fn majority(servers: &[Facts]) -> Finding {
    const CHECK: &str = "majority";
    let granting = servers.iter().filter(|facts| {
        facts.has_module()
            && facts
                .info
                .number("dlock_grace_left_ms")
                .is_none_or(|left_ms| left_ms == 0)
    });
    let (granting, needed) = (granting.count(), servers.len() / 2 + 1);
    let message = format!(
        "{granting} of {} servers can grant locks, {needed} are needed",
        servers.len()
    );
    if granting >= needed {
        return Finding::ok(CHECK, message);
    }
    Finding::problem(
        CHECK,
        message,
        "no lock is granted",
        "bring the others back, and wait for the end of their grace periods",
    )
}

/// A server that is named twice votes twice.
fn duplicates(servers: &[Facts]) -> Option<Finding> {
    let id = |facts: &Facts| facts.info.get("run_id").to_owned();
    let is_duplicate = |(index, facts): &(usize, &Facts)| {
        !id(facts).is_empty() && servers[..*index].iter().any(|other| id(other) == id(facts))
    };
    let (_, facts) = servers.iter().enumerate().find(is_duplicate)?;
    Some(Finding::problem(
        "votes",
        format!("{} is named twice", facts.server),
        "it votes twice: two clients can both have a majority",
        "name each server once, by the same name for all clients",
    ))
}

/// Fences rise across an empty restart only if no clock is behind another by more than the grace period.
fn clocks(servers: &[Facts]) -> Option<Finding> {
    const CHECK: &str = "clocks";
    let ahead_ms = || servers.iter().filter_map(|facts| facts.clock_ahead_ms);
    let apart_ms = ahead_ms().max()?.abs_diff(ahead_ms().min()?);
    let graces = servers.iter().filter_map(startup_grace_ms);
    let grace_ms = graces.min().unwrap_or_default().max(CLOCK_TOLERANCE_MS);
    let format = |ms| duration::format(Duration::from_millis(ms));
    if apart_ms < grace_ms {
        return Some(Finding::ok(CHECK, format!("at most {} apart", format(apart_ms))));
    }
    Some(Finding::problem(
        CHECK,
        format!("{} apart, {} is allowed", format(apart_ms), format(grace_ms)),
        "a server that restarts without its data can grant a smaller fencing token, and the one ahead is left out by others",
        "synchronize the clocks of all servers by NTP",
    ))
}

fn startup_grace_ms(facts: &Facts) -> Option<u64> {
    let setting = facts.setting("dlock.startup-grace-ms")?;
    let max_lease = || facts.setting("dlock.max-lease-ms");
    u64::try_from(if setting < 0 { max_lease()? } else { setting }).ok()
}
