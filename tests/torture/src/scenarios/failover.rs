//! A primary is killed, and a replica takes over that lacks its last writes.

use std::time::{Duration, Instant};

use dlock_testkit::wait_for;
use fastrand::Rng;

use super::group::{ReplicationGroup, synchronous};
use super::{ScenarioRun, Workloads};
use crate::clients::Workload;
use crate::history::History;

/// Replication groups that run in parallel.
const GROUPS: u32 = 3;
pub(super) const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;
/// Nobody waits for the end of such a grace period.
const TOO_LONG_MS: u64 = 3_600_000;
const GRACE: &str = "dlock.failover-grace-ms ";
/// Maximum replication lag when the primary is killed.
const MAX_LAG_MS: u64 = 150;

/// The grace period is as long as the longest lease.
pub fn with_grace(run: &mut ScenarioRun) -> Vec<History> {
    let config = format!("{GRACE}{LEASE_MS}");
    run.in_parallel(GROUPS, move |run| failovers(run, &config, Workload::mixed))
}

pub fn without_grace(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    run.in_parallel(GROUPS, move |run| failovers(run, "", workload))
}

/// Without one too, but grants are told only when all replicas have them.
pub fn with_synchronous_grants(run: &mut ScenarioRun) -> Vec<History> {
    let config = synchronous(SERVERS - 1);
    run.in_parallel(GROUPS, move |run| failovers(run, &config, Workload::mixed))
}

/// With a grace period. Each time the second replica takes over from the first without having replicated from it.
pub fn unsynced(run: &mut ScenarioRun) -> Vec<History> {
    let config = format!("{GRACE}{LEASE_MS}");
    run.in_parallel(GROUPS, move |run| failovers_unsynced(run, &config))
}

/// A grace period that is too long is lowered to the longest lease.
pub fn grace_lowered(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(GROUPS, |run| failovers_left_early(run, LEASE_MS))
}

/// It is ended at once.
pub fn grace_ended(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(GROUPS, |run| failovers_left_early(run, 0))
}

/// An administrator sets the length of each grace period, soon after the promotion.
fn failovers_left_early(run: &mut ScenarioRun, length_ms: u64) -> History {
    let mut group = ReplicationGroup::start(SERVERS, &format!("{GRACE}{TOO_LONG_MS}"));
    let workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    for _ in 0..run.count {
        run.pause(LEASE_MS..=LEASE_MS * 2);
        let dead = fail_over(run, &mut group);
        let mut admin = group.server(group.primary).client();
        wait_for("the grace period", || admin.stat("dlock_grace_left_ms") > 0);
        run.pause(0..=LEASE_MS / 8);
        group
            .recorder
            .event(format!("the grace period is set to {length_ms} ms"));
        // For the next one, it is raised again.
        for length_ms in [length_ms, TOO_LONG_MS] {
            admin.config_set("dlock.failover-grace-ms", &length_ms.to_string());
        }
        group.restart(dead);
        group.resync();
    }
    pool.finish();
    group.finish()
}

fn failovers_unsynced(run: &mut ScenarioRun, config: &str) -> History {
    let mut group = ReplicationGroup::start(SERVERS, config);
    let workload = Workload::mixed(LEASE_MS);
    let pool = run.start_clients(WORKERS, &group.route, &group.recorder, &workload);
    for _ in 0..run.count {
        run.pause(LEASE_MS..=LEASE_MS * 2);
        let first = fail_over(run, &mut group);
        // The new primary grants locks after its grace period.
        run.pause(LEASE_MS * 2..=LEASE_MS * 3);
        group.kill_primary();
        let last = other_than(&group, first);
        let second = group.promote(last);
        group.restart(first);
        group.restart(second);
        group.resync();
    }
    pool.finish();
    group.finish()
}

/// Counts all promotions, including that of a second replica during the grace period of the first.
fn failovers(run: &mut ScenarioRun, config: &str, workload: Workloads) -> History {
    let has_grace = config.starts_with(GRACE);
    let mut group = ReplicationGroup::start(SERVERS, config);
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

/// The replica other than `dead`.
fn other_than(group: &ReplicationGroup, dead: usize) -> usize {
    let mut replicas = group.replicas().into_iter();
    replicas.find(|n| *n != dead).expect("a group has three servers")
}

fn choose(rng: &mut Rng, of: &[usize]) -> usize {
    of[rng.usize(..of.len())]
}
