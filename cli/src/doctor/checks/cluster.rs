//! Checks of a cluster, as one node sees it.

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

pub fn slots(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "cluster";
    if !facts.is_cluster() || facts.cluster.0.is_empty() {
        return None;
    }
    let assigned = facts.cluster.get("cluster_slots_assigned");
    let state = facts.cluster.get("cluster_state");
    if state != "ok" || assigned != "16384" {
        let message = format!("state {state}, {assigned} of 16384 slots assigned");
        return Some(Finding::bad(CHECK, message));
    }
    let nodes = facts.cluster.get("cluster_known_nodes");
    Some(Finding::ok(CHECK, format!("{nodes} nodes, all slots assigned")))
}

pub fn migration(facts: &Facts) -> Option<Finding> {
    const MESSAGE: &str = "CLUSTER MIGRATION is not tested with the module";
    (facts.is_cluster() && facts.has_cluster_migration()).then(|| Finding::bad("slot migration", MESSAGE))
}

pub fn failed_nodes(facts: &Facts) -> Option<Finding> {
    // The first primary reports them; replicas would only repeat it.
    let has_failed = !facts.is_replica() && !facts.failed_nodes.is_empty();
    has_failed.then(|| {
        Finding::bad(
            "cluster nodes",
            format!("failed: {}", facts.failed_nodes.join(", ")),
        )
    })
}
