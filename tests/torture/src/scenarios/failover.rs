//! A primary that is killed, and a replica that takes over without its last words.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::Job;
use super::group::Group;
use crate::clients::{Crew, Habits};
use crate::history::History;
use crate::servers;

/// Groups of servers that fail over side by side.
const GROUPS: u32 = 3;
const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// For so long, at most, a replica lacks what its primary does before that is killed.
const MAX_LAG_MS: u64 = 150;

/// With a grace of the longest lease.
pub fn with_grace(job: &mut Job) -> Vec<History> {
    let config = format!("dlock.failover-grace-ms {LEASE_MS}");
    job.side_by_side(GROUPS, move |job| failovers(job, &config))
}

/// Without any.
pub fn without_grace(job: &mut Job) -> Vec<History> {
    job.side_by_side(GROUPS, |job| failovers(job, ""))
}

/// With a grace, and each time the second replica takes over from the first one without having heard of it.
pub fn unheard(job: &mut Job) -> Vec<History> {
    let config = format!("dlock.failover-grace-ms {LEASE_MS}");
    job.side_by_side(GROUPS, move |job| failovers_unheard(job, &config))
}

fn failovers_unheard(job: &mut Job, config: &str) -> History {
    let mut group = Group::start(SERVERS, config);
    let habits = Habits::mixed(LEASE_MS);
    let crew = Crew::hire(WORKERS, "w", &group.route, &group.journal, &habits, &mut job.rng);
    for _ in 0..job.count {
        job.pause(LEASE_MS..=LEASE_MS * 2);
        let first = fail_over(job, &mut group);
        // The new primary grants something after its grace.
        job.pause(LEASE_MS * 2..=LEASE_MS * 3);
        group.kill_primary();
        let last = other_than(&group, first);
        let second = group.promote(last);
        group.revive(first);
        group.revive(second);
        group.reunite();
    }
    crew.dismiss();
    group.settle()
}

/// Counts promotions, those of a second replica in the grace of the first included.
fn failovers(job: &mut Job, config: &str) -> History {
    let has_grace = !config.is_empty();
    let mut group = Group::start(SERVERS, config);
    let habits = Habits {
        keeps_name: true,
        ..Habits::mixed(LEASE_MS)
    };
    let crew = Crew::hire(WORKERS, "w", &group.route, &group.journal, &habits, &mut job.rng);
    let mut done = 0;
    while done < job.count {
        job.pause(LEASE_MS..=LEASE_MS * 2);
        if job.rng.u8(..4) == 0 {
            disturb_a_replica(job, &mut group);
        }
        let dead = fail_over(job, &mut group);
        done += 1;
        if has_grace && done < job.count && job.rng.u8(..4) == 0 {
            let died_in_its_grace = fail_over_again(job, &mut group, dead);
            done += 1;
            group.revive(died_in_its_grace);
        }
        group.revive(dead);
        group.reunite();
    }
    crew.dismiss();
    group.settle()
}

/// A replica is stopped, dies, or loses its link, and catches up.
fn disturb_a_replica(job: &mut Job, group: &mut Group) {
    let n = choose(&mut job.rng, &group.replicas());
    match job.rng.u8(..3) {
        0 => {
            group.journal.event("a replica is stopped");
            servers::stop(group.server(n));
            job.pause(0..=LEASE_MS);
            servers::resume(group.server(n));
        }
        1 => {
            group.kill(n);
            group.revive(n);
            group.reunite();
        }
        _ => {
            group.journal.event("the links to the replicas are cut");
            let mut client = group.server(group.primary).client();
            client.ask::<i64>("CLIENT KILL TYPE replica");
        }
    }
}

/// Both replicas stop hearing, not at the same moment; the primary goes on for a while and dies; one of
/// them takes over.
fn fail_over(job: &mut Job, group: &mut Group) -> usize {
    group.wait_for_a_grant_that_all_know();
    let mut replicas = group.replicas();
    job.rng.shuffle(&mut replicas);
    for n in &replicas {
        group.cut_off(*n);
        job.pause(0..=MAX_LAG_MS / 2);
    }
    group.kill_primary();
    job.pause(0..=20);
    group.promote(choose(&mut job.rng, &replicas))
}

/// The new primary dies too, inside its grace, as soon as the other replica follows it. If that took too
/// long, the replica first gets all that the new primary has done meanwhile.
fn fail_over_again(job: &mut Job, group: &mut Group, dead: usize) -> usize {
    let promoted = Instant::now();
    let last = group
        .replicas()
        .into_iter()
        .find(|n| *n != dead)
        .expect("three servers");
    group.follow(last);
    group.server(last).wait_until_linked();
    job.pause(0..=LEASE_MS / 4);
    if promoted.elapsed() > Duration::from_millis(LEASE_MS / 2) {
        group.wait_for_stream(1);
    }
    group.kill_primary();
    group.promote(last)
}

/// The replica that is not `dead`.
fn other_than(group: &Group, dead: usize) -> usize {
    let mut replicas = group.replicas().into_iter();
    replicas.find(|n| *n != dead).expect("a group has three servers")
}

fn choose(rng: &mut Rng, of: &[usize]) -> usize {
    of[rng.usize(..of.len())]
}
