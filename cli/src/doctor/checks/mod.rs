//! Derives findings from facts. Pure.

mod cluster;
mod durability;
mod grace;
pub mod quorum;
mod replication;
pub mod server;

use super::facts::Facts;
use super::finding::Finding;

type Check = fn(&Facts) -> Option<Finding>;

/// The checks of a server with the module.
const CHECKS: &[Check] = &[
    server::version,
    replication::role,
    server::permissions,
    server::denied_queries,
    server::denied_locks,
    server::config,
    server::eviction,
    server::memory,
    server::clients,
    server::queue_limit,
    server::deadlock_detection,
    server::tls,
    durability::persistence,
    durability::disk,
    grace::startup_grace,
    replication::replicas,
    replication::min_replicas,
    grace::failover_grace,
    grace::running,
    grace::long,
    server::timers,
    server::clock,
    cluster::slots,
    cluster::failed_nodes,
    cluster::migration,
    server::expired_leases,
    server::limits,
];

/// All findings about one server of a deployment.
pub fn check(facts: &Facts, deployment: &[Facts]) -> Vec<Finding> {
    let module = match module(facts, deployment) {
        Ok(module) => module,
        Err(finding) => return vec![finding],
    };
    let checks = CHECKS.iter().filter_map(|check| check(facts));
    let settings = replication::settings_differ(facts, deployment);
    std::iter::once(module).chain(checks).chain(settings).collect()
}

/// The finding about the module, or why there is nothing else to check.
fn module(facts: &Facts, deployment: &[Facts]) -> Result<Finding, Finding> {
    if let Some(reason) = &facts.unreachable {
        return Err(Finding::problem(
            "reachability",
            reason,
            "an unreachable primary grants no locks, an unreachable replica cannot take over",
            "check that the server runs, and that it can be reached from here at this address",
        ));
    }
    if facts.info.0.is_empty() {
        return Err(Finding::warning(
            "info",
            "the user has no permission for INFO",
            "almost nothing can be checked",
            "run dlock doctor as a user with +info +config|get +module|list +cluster|info +cluster|nodes +time +scan \
             +multi +discard",
        ));
    }
    let module = server::module(facts, deployment);
    if facts.has_module() {
        Ok(module)
    } else {
        Err(module)
    }
}

#[cfg(test)]
mod tests;
