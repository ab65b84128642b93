//! A Sentinel promotes a replica when the primary is killed or stopped.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::Sentinel;

use super::ScenarioRun;
use super::group::{Protection, ReplicationGroup};
use crate::clients::Workload;
use crate::history::History;

const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// A Sentinel that finds no suitable replica retries after 10 s, twice its failover timeout.
const PROMOTION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The primary is killed; with synchronous grants, it is sometimes stopped instead, and goes on afterwards.
pub fn failovers(run: &mut ScenarioRun, protection: Protection) -> Vec<History> {
    let mut group = ReplicationGroup::start(SERVERS, &protection.config(LEASE_MS, SERVERS - 1));
    let workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    for _ in 0..run.count {
        // A new Sentinel each round, which discovers the current topology.
        let sentinel = Sentinel::of(group.server(group.primary), SERVERS - 1);
        run.pause(LEASE_MS..=LEASE_MS * 2);
        let is_stopped = protection == Protection::Synchronous && run.rng.bool();
        if is_stopped {
            group.recorder.event("SIGSTOP of the primary");
            group.server(group.primary).stop();
        } else {
            group.kill_primary();
        }
        let new = wait_for_promotion(&group);
        let old = group.redirect_clients(new);
        drop(sentinel);
        if is_stopped {
            group.recorder.event("SIGCONT of the old primary");
            group.server(old).resume();
            run.pause(0..=LEASE_MS);
        } else {
            group.restart(old);
        }
        group.resync();
    }
    pool.finish();
    vec![group.finish()]
}

fn wait_for_promotion(group: &ReplicationGroup) -> usize {
    let start = Instant::now();
    while start.elapsed() < PROMOTION_TIMEOUT {
        if let Some(new) = group.new_primary() {
            return new;
        }
        thread::sleep(POLL_INTERVAL);
    }
    panic!("the Sentinel promoted no replica within {PROMOTION_TIMEOUT:?}");
}
