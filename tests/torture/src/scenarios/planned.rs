//! A primary that hands over to its replica.

use dlock_testkit::wait_for;

use super::Job;
use super::group::Group;
use crate::clients::{Crew, Habits};
use crate::history::History;

const GROUPS: u32 = 2;
const SERVERS: usize = 2;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;

/// FAILOVER, again and again.
pub fn failovers(job: &mut Job) -> Vec<History> {
    job.side_by_side(GROUPS, hand_overs)
}

fn hand_overs(job: &mut Job) -> History {
    let mut group = Group::start(SERVERS, "appendonly yes\nappendfsync no");
    let habits = Habits::mixed(LEASE_MS);
    let crew = Crew::hire(WORKERS, "w", &group.route, &group.journal, &habits, &mut job.rng);
    for _ in 0..job.count {
        job.pause(LEASE_MS / 2..=LEASE_MS * 2);
        hand_over(&mut group);
    }
    crew.dismiss();
    group.settle()
}

fn hand_over(group: &mut Group) {
    let old = group.primary;
    group.journal.event("FAILOVER");
    group.server(old).client().ok("FAILOVER TIMEOUT 20000");
    wait_for("the promotion", || group.new_primary().is_some());
    let new = group.new_primary().expect("it was there a moment ago");
    group.send_clients_to(new);
    // The old one follows by itself.
    group.server(old).wait_until_linked();
    group.wait_for_stream(SERVERS - 1);
}
