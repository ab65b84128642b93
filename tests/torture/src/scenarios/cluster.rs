//! A cluster with migrating slots, and one with crashing primaries.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Cluster, Move, Server, wait_for};

use super::group::Protection;
use super::{ScenarioRun, Workloads};
use crate::clients::{Route, Workload};
use crate::history::{GUARDED, History, PLAIN, Recorder, ServerTerm};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 400;
const NODES: u16 = 3;
/// The other node must have received that the slot was claimed. TCP may hold such a message back for 40 ms.
const MIN_TIME_AWAY: Duration = Duration::from_millis(100);

/// Slots migrate back and forth between two nodes, with holders and waiters.
pub fn resharding(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    let mut cluster = Cluster::start(2);
    let recorder = Recorder::default();
    let route = Route::to_cluster(cluster.nodes.iter().map(initial_term).collect());
    let workload = workload(LEASE_MS);
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    let mut moved = vec![Instant::now(); workload.locks.len()];
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS);
        let n = run.rng.usize(..moved.len());
        thread::sleep(MIN_TIME_AWAY.saturating_sub(moved[n].elapsed()));
        move_slot_of(run, &cluster, &workload.locks[n].0, &recorder);
        moved[n] = Instant::now();
    }
    pool.finish();
    for node in &mut cluster.nodes {
        servers::record_final_state(node, &recorder);
    }
    vec![recorder.history()]
}

fn move_slot_of(run: &mut ScenarioRun, cluster: &Cluster, key: &str, recorder: &Recorder) {
    let mut keys = [
        key.to_owned(),
        format!("{{{key}}}{GUARDED}"),
        format!("{{{key}}}{PLAIN}"),
    ];
    run.rng.shuffle(&mut keys);
    move_slot(run, cluster, &keys, recorder);
}

/// Moves the slot of these keys to the other one of the first two nodes, key by key.
pub(super) fn move_slot(run: &mut ScenarioRun, cluster: &Cluster, keys: &[String], recorder: &Recorder) {
    let key = &keys[0];
    for node in [0, 1] {
        let mut client = cluster.client(node);
        wait_for("a cluster that is up", || {
            client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
        });
    }
    let from = usize::from(!is_here(&mut cluster.client(0), key));
    let to = 1 - from;
    let slot = cluster.begin_move(key, from, to);
    recorder.event(format!("slot {} of {key} migrating to node {to}", slot.slot));
    for key in keys {
        run.pause(0..=50);
        migrate(cluster, slot, key);
    }
    run.pause(0..=20);
    // The new owner first, so that the slot is never without one.
    cluster.client(to).ok(&cluster.assign(slot));
    cluster.client(from).ok(&cluster.assign(slot));
    recorder.event(format!("slot {} assigned to node {to}", slot.slot));
}

pub(super) fn is_here(client: &mut Client, key: &str) -> bool {
    client.call(&format!("EXISTS {key}")).is_ok()
}

/// The key cannot be created again afterwards: the old node replies ASK for missing keys.
fn migrate(cluster: &Cluster, slot: Move, key: &str) {
    let mut client = cluster.client(slot.from);
    // On a busy machine, nodes may take each other to be down for a moment.
    wait_for("a node that migrates", || {
        match client.call(&cluster.migrate(slot, key)) {
            Err(error) if error.code() == Some("CLUSTERDOWN") => false,
            result => result.map(|_| true).expect("a key of the slot migrates"),
        }
    });
}

/// Three primaries, one with a replica. That primary is killed, and the cluster promotes the replica. With synchronous
/// grants, it is sometimes stopped instead, and goes on afterwards.
pub fn failovers(run: &mut ScenarioRun, protection: Protection) -> Vec<History> {
    let config = protection.config(LEASE_MS, 1);
    let mut cluster = Cluster::start(NODES);
    let (mut primary, mut replica) = (0, usize::from(NODES));
    cluster.add_replica(primary);
    for n in [primary, replica] {
        cluster.nodes[n].add_config(&config);
        for setting in config.lines() {
            cluster.client(n).ok(&format!("CONFIG SET {setting}"));
        }
    }

    let recorder = Recorder::default();
    let route = Route::to_cluster(cluster.nodes.iter().map(initial_term).collect());
    let mut workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    // All locks are on the node that is killed.
    for (key, _) in &mut workload.locks {
        *key = cluster.key_on(primary, key);
    }
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    for term in 1..=run.count {
        run.pause(LEASE_MS..=LEASE_MS * 2);
        wait_until_known_as_replica(&cluster, replica);
        servers::wait_for_replication(&cluster.nodes[primary], 1);
        route.set_term(cluster.nodes[replica].port(), term);
        let is_stopped = protection == Protection::Synchronous && run.rng.bool();
        let port = cluster.nodes[primary].port();
        if is_stopped {
            recorder.event(format!("SIGSTOP of port {port}"));
            cluster.nodes[primary].stop();
        } else {
            recorder.event(format!("kill -9 of port {port}"));
            cluster.nodes[primary].kill();
        }
        wait_for("the promotion by the cluster", || {
            is_primary(&cluster.nodes[replica])
        });
        recorder.event(format!("port {} is promoted", cluster.nodes[replica].port()));
        if is_stopped {
            recorder.event(format!("SIGCONT of port {port}"));
            cluster.nodes[primary].resume();
        } else {
            cluster.nodes[primary].start_again();
        }
        std::mem::swap(&mut primary, &mut replica);
        wait_for("the old primary as a replica", || {
            !is_primary(&cluster.nodes[replica])
        });
        cluster.nodes[replica].wait_until_linked();
    }
    pool.finish();
    servers::check_no_crash(&mut cluster.nodes[replica], &recorder);
    servers::record_final_state(&mut cluster.nodes[primary], &recorder);
    vec![recorder.history()]
}

/// All nodes must see each other as connected and the replica as a replica, or they would not elect it.
pub(super) fn wait_until_known_as_replica(cluster: &Cluster, replica: usize) {
    let id = cluster.id(replica);
    let count = cluster.nodes.len();
    wait_for("a cluster that has accepted the replica", || {
        (0..count).all(|n| knows_all(&mut cluster.client(n), count, &id))
    });
}

fn knows_all(client: &mut Client, count: usize, replica: &str) -> bool {
    let nodes: String = client.ask("CLUSTER NODES");
    let mut lines = nodes.lines();
    lines.clone().count() == count
        && lines
            .clone()
            .all(|line| line.contains(" connected") && !line.replace("nofailover", "").contains("fail"))
        && lines.any(|line| line.starts_with(replica) && line.contains("slave"))
}

pub(super) fn initial_term(server: &Server) -> ServerTerm {
    ServerTerm {
        port: server.port(),
        term: 0,
    }
}

fn is_primary(server: &Server) -> bool {
    server.client().server_info("replication", "role") == "master"
}
