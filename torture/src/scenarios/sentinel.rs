//! A Sentinel that promotes a replica when the primary has died.

use dlock_testkit::{Sentinel, wait_for};

use super::Job;
use super::group::Group;
use crate::clients::{Crew, Habits};
use crate::history::History;

const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;

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
        wait_for("the promotion by the Sentinel", || group.new_primary().is_some());
        let new = group.new_primary().expect("it was there a moment ago");
        let dead = group.send_clients_to(new);
        drop(sentinel);
        group.revive(dead);
        group.reunite();
    }
    crew.dismiss();
    vec![group.settle()]
}
