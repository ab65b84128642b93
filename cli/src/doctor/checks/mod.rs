//! Derives findings from facts. Pure.

mod cluster;
mod durability;
mod grace;
pub mod quorum;
mod replication;
mod server;

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
        return Err(Finding::bad("reachability", reason));
    }
    if facts.info.0.is_empty() {
        return Err(Finding::bad("info", "the user has no permission for INFO"));
    }
    let module = server::module(facts, deployment);
    match facts.has_module() {
        true => Ok(module),
        false => Err(module),
    }
}

#[cfg(test)]
mod tests;
