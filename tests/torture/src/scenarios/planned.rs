//! Planned failovers.

use dlock_testkit::wait_for;

use super::ScenarioRun;
use super::group::ReplicationGroup;
use crate::clients::Workload;
use crate::history::History;

const GROUPS: u32 = 2;
pub(super) const SERVERS: usize = 2;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;

/// Repeated FAILOVER.
pub fn failovers(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(GROUPS, planned_failovers)
}

fn planned_failovers(run: &mut ScenarioRun) -> History {
    let mut group = ReplicationGroup::start(SERVERS, "appendonly yes\nappendfsync no");
    let workload = Workload::mixed(LEASE_MS);
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    for _ in 0..run.count {
        run.pause(LEASE_MS / 2..=LEASE_MS * 2);
        planned_failover(&mut group);
    }
    pool.finish();
    group.finish()
}

pub(super) fn planned_failover(group: &mut ReplicationGroup) {
    let old = group.primary;
    group.recorder.event("FAILOVER");
    group.server(old).client().ok("FAILOVER TIMEOUT 20000");
    wait_for("the promotion", || group.new_primary().is_some());
    let new = group.new_primary().expect("the condition above holds");
    group.redirect_clients(new);
    // The old primary becomes a replica by itself.
    group.server(old).wait_until_linked();
    group.wait_for_replication(SERVERS - 1);
}
