//! A Sentinel that promotes a replica when the primary has died.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::Sentinel;

use super::ScenarioRun;
use super::group::ReplicationGroup;
use crate::clients::Workload;
use crate::history::History;

const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// A Sentinel that found no good replica tries again after 10 s, twice the timeout that it is given.
const PROMOTION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The primary is killed, a Sentinel promotes a replica, with a grace.
pub fn failovers(run: &mut ScenarioRun) -> Vec<History> {
    let mut group = ReplicationGroup::start(SERVERS, &format!("dlock.failover-grace-ms {LEASE_MS}"));
    let workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    for _ in 0..run.count {
        // Each round has a Sentinel of its own, which knows the servers as they are now.
        let sentinel = Sentinel::of(group.server(group.primary), SERVERS - 1);
        run.pause(LEASE_MS..=LEASE_MS * 2);
        group.kill_primary();
        let new = wait_for_promotion(&group);
        let dead = group.redirect_clients(new);
        drop(sentinel);
        group.restart(dead);
        group.resync();
    }
    pool.finish();
    vec![group.check_final_state()]
}

fn wait_for_promotion(group: &ReplicationGroup) -> usize {
    let start = Instant::now();
    while start.elapsed() < PROMOTION_TIMEOUT {
        if let Some(new) = group.new_primary() {
            return new;
        }
        thread::sleep(POLL_INTERVAL);
    }
    panic!("the Sentinel promoted nobody within {PROMOTION_TIMEOUT:?}");
}
