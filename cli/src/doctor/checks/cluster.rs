//! Checks of a cluster, as one node sees it.

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

pub fn slots(facts: &Facts) -> Option<Finding> {
    if !facts.is_cluster() || facts.cluster.0.is_empty() {
        return None;
    }
    let assigned = facts.cluster.get("cluster_slots_assigned");
    let state = facts.cluster.get("cluster_state");
    if state != "ok" || assigned != "16384" {
        return Some(Finding::problem(
            "cluster",
            format!("state {state}, {assigned} of 16384 slots assigned"),
            "locks in unassigned or failed slots cannot be used (CLUSTERDOWN)",
            "see redis-cli --cluster check, and bring the missing nodes back",
        ));
    }
    let nodes = facts.cluster.get("cluster_known_nodes");
    Some(Finding::ok(
        "cluster",
        format!("{nodes} nodes, all slots assigned"),
    ))
}

pub fn migration(facts: &Facts) -> Option<Finding> {
    (facts.is_cluster() && facts.has_cluster_migration()).then(|| {
        Finding::warning(
            "slot migration",
            "CLUSTER MIGRATION is not tested with the module",
            "locks of slots that it moves may be lost",
            "move slots key by key: redis-cli --cluster reshard",
        )
    })
}

pub fn failed_nodes(facts: &Facts) -> Option<Finding> {
    // The first primary reports them; replicas would only repeat it.
    if facts.is_replica() || facts.failed_nodes.is_empty() {
        return None;
    }
    Some(Finding::warning(
        "cluster nodes",
        format!("failed: {}", facts.failed_nodes.join(", ")),
        "the locks of a failed primary are unavailable unless a replica took over; that primary now has one replica less",
        "bring them back, or remove them with redis-cli --cluster del-node",
    ))
}
