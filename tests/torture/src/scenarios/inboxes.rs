//! Processes of the Rust client, whose tasks wait for many locks through an inbox each. They are killed, stopped, and cut
//! from the server, while servers restart, fail over, or exchange slots.

use dlock_testkit::{Cluster, Server};

use super::cluster::{initial_term, move_slot};
use super::crowd::Crowd;
use super::group::{Protection, ReplicationGroup};
use super::{ScenarioRun, failover, one_server, planned, restart, slot_migration};
use crate::clients::Route;
use crate::faults::Power;
use crate::history::{History, Recorder};
use crate::servers;

const LOCKS: usize = 40;
/// Locks of a slot migrate together.
const SLOTS: usize = 8;
const LEASE_MS: u64 = 800;
const CONFIG: &str = "appendonly yes\nappendfsync always\nio-threads 2";
/// The nodes need a moment to agree on a slot before it may migrate again.
const MIN_TIME_AWAY_MS: u64 = 100;

/// One server, which is stopped, pauses its clients, and loses its power: all that was acknowledged was synced before.
pub fn one_server(run: &mut ScenarioRun) -> Vec<History> {
    let power = Power::new();
    let mut server = Server::with_environment(CONFIG, power.environment());
    let recorder = Recorder::default();
    let mut crowd = Crowd::start(run, vec![server.port()], lock_names(), LEASE_MS, &recorder);
    for _ in 0..run.count {
        run.pause(20..=LEASE_MS / 2);
        crowd.one_fault(run);
        match run.rng.u8(..6) {
            0 => {
                restart::lose_power(&mut server, &power, &recorder);
                crowd.disconnect();
                server.start_again();
                crowd.connect_to(server.port());
            }
            1 => one_server::disturb(run, &server, &recorder),
            _ => {}
        }
    }
    let _ = server.client().call("CLIENT UNPAUSE");
    crowd.end_inbox_of_one();
    crowd.finish(&Route::to(server.port(), 0));
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// The primary is killed with unreplicated writes.
pub fn failovers(run: &mut ScenarioRun, protection: Protection) -> Vec<History> {
    let config = protection.config(LEASE_MS, failover::SERVERS - 1);
    let mut group = ReplicationGroup::start(failover::SERVERS, &config);
    let recorder = group.recorder.clone();
    let mut crowd = Crowd::start(run, vec![group.port()], lock_names(), LEASE_MS, &recorder);
    for _ in 0..run.count {
        for _ in 0..run.rng.u8(1..=3) {
            run.pause(20..=LEASE_MS);
            crowd.one_fault(run);
        }
        let new = failover::kill_primary(run, &mut group);
        crowd.disconnect();
        let dead = group.promote(new);
        crowd.connect_to(group.port());
        group.restart(dead);
        group.resync();
    }
    crowd.finish(&group.route);
    vec![group.finish()]
}

/// Planned failovers with FAILOVER: the old primary goes on as a replica.
pub fn planned_failovers(run: &mut ScenarioRun) -> Vec<History> {
    let mut group = ReplicationGroup::start(planned::SERVERS, "appendonly yes\nappendfsync no");
    let recorder = group.recorder.clone();
    let mut crowd = Crowd::start(run, vec![group.port()], lock_names(), LEASE_MS, &recorder);
    for _ in 0..run.count {
        run.pause(LEASE_MS / 2..=LEASE_MS * 2);
        crowd.one_fault(run);
        planned::planned_failover(&mut group);
        crowd.connect_to(group.port());
    }
    crowd.finish(&group.route);
    vec![group.finish()]
}

/// Slots migrate back and forth between two nodes, with holders and waiters.
pub fn resharding(run: &mut ScenarioRun) -> Vec<History> {
    let mut cluster = Cluster::start(2);
    let recorder = Recorder::default();
    let ports = cluster.nodes.iter().map(Server::port).collect();
    let locks = lock_names_by_slot();
    let mut crowd = Crowd::start(run, ports, locks.concat(), LEASE_MS, &recorder);
    for _ in 0..run.count {
        run.pause(MIN_TIME_AWAY_MS..=LEASE_MS);
        crowd.one_fault(run);
        let mut keys = locks[run.rng.usize(..SLOTS)].clone();
        run.rng.shuffle(&mut keys);
        move_slot(run, &cluster, &keys, &recorder);
    }
    let nodes = cluster.nodes.iter().map(initial_term).collect();
    crowd.finish(&Route::to_cluster(nodes));
    for node in &mut cluster.nodes {
        servers::record_final_state(node, &recorder);
    }
    vec![recorder.history()]
}

/// Slots migrate atomically (Valkey 9).
pub fn slot_migrations(run: &mut ScenarioRun) -> Vec<History> {
    let Some(mut nodes) = slot_migration::Nodes::start(false) else {
        return Vec::new();
    };
    let recorder = nodes.recorder.clone();
    let locks = lock_names_by_slot();
    let mut crowd = Crowd::start(run, nodes.ports(), locks.concat(), LEASE_MS, &recorder);
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS);
        crowd.one_fault(run);
        let slot = run.rng.usize(..SLOTS);
        nodes.migrate(run, &locks[slot][0]);
    }
    crowd.finish(&nodes.route);
    nodes.finish()
}

fn lock_names() -> Vec<String> {
    (0..LOCKS).map(|n| format!("lock{n}")).collect()
}

fn lock_names_by_slot() -> Vec<Vec<String>> {
    let slots = (0..SLOTS).map(|slot| {
        let names = (0..LOCKS / SLOTS).map(|n| format!("{{slot{slot}}}lock{n}"));
        names.collect()
    });
    slots.collect()
}
