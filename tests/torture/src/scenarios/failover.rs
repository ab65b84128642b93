//! A primary is killed, and a replica takes over that lacks its last writes.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::group::{Protection, ReplicationGroup};
use super::{ScenarioRun, Workloads};
use crate::clients::Workload;
use crate::history::History;

/// Replication groups that run in parallel.
const GROUPS: u32 = 3;
pub(super) const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// Maximum replication lag when the primary is killed.
const MAX_LAG_MS: u64 = 150;

pub fn failovers(run: &mut ScenarioRun, protection: Protection, workload: Workloads) -> Vec<History> {
    run.in_parallel(GROUPS, move |run| failovers_of_group(run, protection, workload))
}

/// Counts all promotions, including that of a second replica during the grace period of the first.
fn failovers_of_group(run: &mut ScenarioRun, protection: Protection, workload: Workloads) -> History {
    let has_grace = protection == Protection::Grace;
    let mut group = ReplicationGroup::start(SERVERS, &protection.config(LEASE_MS, SERVERS - 1));
    let workload = Workload {
        keeps_owner: true,
        ..workload(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    let mut done = 0;
    while done < run.count {
        run.pause(LEASE_MS..=LEASE_MS * 2);
        if run.rng.u8(..4) == 0 {
            disturb_replica(run, &mut group);
        }
        let dead = fail_over(run, &mut group);
        done += 1;
        if has_grace && done < run.count && run.rng.u8(..4) == 0 {
            let killed_in_grace = fail_over_again(run, &mut group, dead);
            done += 1;
            group.restart(killed_in_grace);
        }
        group.restart(dead);
        group.resync();
    }
    pool.finish();
    group.finish()
}

/// A replica is paused, killed or disconnected, and catches up.
fn disturb_replica(run: &mut ScenarioRun, group: &mut ReplicationGroup) {
    let n = choose(&mut run.rng, &group.replicas());
    match run.rng.u8(..3) {
        0 => {
            group.recorder.event("SIGSTOP of a replica");
            group.server(n).stop();
            run.pause(0..=LEASE_MS);
            group.server(n).resume();
        }
        1 => {
            group.kill(n);
            group.restart(n);
            group.resync();
        }
        _ => {
            group.recorder.event("replication links cut");
            let mut client = group.server(group.primary).client();
            client.ask::<i64>("CLIENT KILL TYPE replica");
        }
    }
}

/// One of the replicas is promoted.
fn fail_over(run: &mut ScenarioRun, group: &mut ReplicationGroup) -> usize {
    let new = kill_primary(run, group);
    group.promote(new)
}

/// Both replicas are detached, one after the other. The primary keeps serving for a while and is killed. Returns the
/// replica to be promoted.
pub(super) fn kill_primary(run: &mut ScenarioRun, group: &mut ReplicationGroup) -> usize {
    group.wait_for_replicated_grant();
    let mut replicas = group.replicas();
    run.rng.shuffle(&mut replicas);
    for n in &replicas {
        group.detach(*n);
        run.pause(0..=MAX_LAG_MS / 2);
    }
    group.kill_primary();
    run.pause(0..=20);
    choose(&mut run.rng, &replicas)
}

/// The new primary is killed during its grace period, as soon as the other replica follows it. If that took too long,
/// the replica catches up first.
fn fail_over_again(run: &mut ScenarioRun, group: &mut ReplicationGroup, dead: usize) -> usize {
    let promoted = Instant::now();
    let mut last = group.replicas().into_iter();
    let last = last.find(|n| *n != dead).expect("three servers");
    group.follow(last);
    group.server(last).wait_until_linked();
    run.pause(0..=LEASE_MS / 4);
    if promoted.elapsed() > Duration::from_millis(LEASE_MS / 2) {
        group.wait_for_replication(1);
    }
    group.kill_primary();
    group.promote(last)
}

fn choose(rng: &mut Rng, of: &[usize]) -> usize {
    of[rng.usize(..of.len())]
}
