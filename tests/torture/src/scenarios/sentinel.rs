//! A Sentinel that promotes a replica when the primary has died.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::Sentinel;

use super::Job;
use super::group::Group;
use crate::clients::{Crew, Habits};
use crate::history::History;

const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// A Sentinel that found no good replica tries again after 10 s, twice the timeout that it is given.
const PROMOTION_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The primary is killed, a Sentinel promotes a replica, with a grace.
pub fn failovers(job: &mut Job) -> Vec<History> {
    let mut group = Group::start(SERVERS, &format!("dlock.failover-grace-ms {LEASE_MS}"));
    let habits = Habits {
        keeps_name: true,
        ..Habits::mixed(LEASE_MS)
    };
    let crew = Crew::hire(WORKERS, "w", &group.route, &group.journal, &habits, &mut job.rng);
    for _ in 0..job.count {
        // Each round has a Sentinel of its own, which knows the servers as they are now.
        let sentinel = Sentinel::of(group.server(group.primary), SERVERS - 1);
        job.pause(LEASE_MS..=LEASE_MS * 2);
        group.kill_primary();
        let new = wait_for_promotion(&group);
        let dead = group.send_clients_to(new);
        drop(sentinel);
        group.revive(dead);
        group.reunite();
    }
    crew.dismiss();
    vec![group.settle()]
}

fn wait_for_promotion(group: &Group) -> usize {
    let start = Instant::now();
    while start.elapsed() < PROMOTION_TIMEOUT {
        if let Some(new) = group.new_primary() {
            return new;
        }
        thread::sleep(POLL_INTERVAL);
    }
    panic!("the Sentinel promoted nobody within {PROMOTION_TIMEOUT:?}");
}
