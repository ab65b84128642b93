//! Slots of a cluster migrate atomically (Valkey 9), between two primaries. Some migrations are cancelled, some take
//! longer than a lease.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Cluster, Server, skip, wait_for};

use super::ScenarioRun;
use super::cluster::{initial_term, is_here, wait_until_known_as_replica};
use crate::clients::{Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 400;
/// Nothing that was acknowledged is lost in a crash. Only planned failovers, which lose nothing either.
const LOSSLESS: &str = "appendonly yes\nappendfsync always\ncluster-replica-no-failover yes";

/// Of nodes that have neither replicas nor a log: nothing but the migration needs the changes of locks. Or of nodes with both,
/// one of which is killed and restarted, or fails over, during some migrations.
pub fn migrations(run: &mut ScenarioRun, with_faults: bool) -> Vec<History> {
    let Some(mut nodes) = Nodes::start(with_faults) else {
        return Vec::new();
    };
    let workload = Workload::mixed(LEASE_MS);
    let pool = run.start_clients(WORKERS, &nodes.route, &nodes.recorder, &workload);
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS);
        let (key, _) = &workload.locks[run.rng.usize(..workload.locks.len())];
        nodes.migrate(run, key);
    }
    pool.finish();
    nodes.finish()
}

pub(super) struct Nodes {
    cluster: Cluster,
    primaries: [usize; 2],
    /// The replica of each primary.
    replicas: Option<[usize; 2]>,
    pub route: Route,
    pub recorder: Recorder,
}

impl Nodes {
    /// `None` if the server has no atomic migration.
    pub fn start(with_replicas: bool) -> Option<Self> {
        let cluster = Cluster::start(2);
        if cluster.client(0).call("CLUSTER GETSLOTMIGRATIONS").is_err() {
            skip("the server has no CLUSTER MIGRATESLOTS");
            return None;
        }
        Some(Self::of(cluster, with_replicas))
    }

    pub fn ports(&self) -> Vec<u16> {
        self.cluster.nodes.iter().map(Server::port).collect()
    }

    fn of(mut cluster: Cluster, with_replicas: bool) -> Self {
        if with_replicas {
            (0..2).for_each(|primary| _ = cluster.add_replica(primary));
            for node in &mut cluster.nodes {
                node.add_config(LOSSLESS);
                let mut client = node.client();
                for (name, value) in LOSSLESS.lines().rev().filter_map(|line| line.split_once(' ')) {
                    client.config_set(name, value);
                }
                client.wait_for_aof_rewrite();
            }
        }
        Self {
            route: Route::to_cluster(cluster.nodes.iter().map(initial_term).collect()),
            cluster,
            primaries: [0, 1],
            replicas: with_replicas.then_some([2, 3]),
            recorder: Recorder::default(),
        }
    }

    fn primary(&self, side: usize) -> Client {
        self.cluster.client(self.primaries[side])
    }

    /// The side that has the slot of the key.
    fn side_of(&self, key: &str) -> usize {
        usize::from(!is_here(&mut self.primary(0), key))
    }

    pub fn migrate(&mut self, run: &mut ScenarioRun, key: &str) {
        let from = self.side_of(key);
        let node = self.primaries[from];
        // A snapshot and a stream of changes that each take longer than a lease, or no time.
        let mut delay_ms = || {
            if run.rng.bool() {
                run.rng.u64(..=2 * LEASE_MS)
            } else {
                0
            }
        };
        let (snapshot_ms, stream_ms) = (delay_ms(), delay_ms());
        let slot = self.begin(key, from, snapshot_ms);
        self.recorder.event(format!(
            "slot {slot} of {key} migrates to node {}, {snapshot_ms} ms and {stream_ms} ms",
            self.primaries[1 - from]
        ));
        run.pause(0..=snapshot_ms + stream_ms);
        self.interrupt(run, from);
        let mut source = self.cluster.client(node);
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        source.config_set("rdb-key-save-delay", "0");
        wait_for("the end of the migration", || {
            // A node that was restarted knows none.
            let jobs: Vec<BTreeMap<String, String>> = source.ask("CLUSTER GETSLOTMIGRATIONS");
            let ends = ["success", "cancelled", "failed"];
            jobs.iter().all(|job| ends.contains(&job["state"].as_str()))
        });
        wait_for("both sides to agree", || {
            let here = |side| is_here(&mut self.primary(side), key);
            here(0) != here(1)
        });
        let node = self.primaries[self.side_of(key)];
        self.recorder.event(format!("slot {slot} is at node {node}"));
    }

    /// Begins a migration that ends no earlier than it is allowed to.
    fn begin(&self, key: &str, from: usize, snapshot_ms: u64) -> u16 {
        let (mut source, target) = (self.primary(from), self.cluster.id(self.primaries[1 - from]));
        source.config_set("rdb-key-save-delay", &(snapshot_ms * 1000).to_string());
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        let slot = source.ask(&format!("CLUSTER KEYSLOT {key}"));
        source.ok(&format!(
            "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"
        ));
        slot
    }

    fn interrupt(&mut self, run: &mut ScenarioRun, from: usize) {
        let side = run.rng.usize(..2);
        match (run.rng.u8(..8), self.replicas) {
            (0..=1, _) => {
                self.recorder.event("the migration is cancelled");
                // Unless it has failed before.
                let _ = self.primary(from).call("CLUSTER CANCELSLOTMIGRATIONS");
            }
            (2..=3, Some(_)) => self.kill(side),
            (4..=5, Some(replicas)) => self.fail_over(side, replicas),
            _ => {}
        }
    }

    fn kill(&mut self, side: usize) {
        let node = &mut self.cluster.nodes[self.primaries[side]];
        self.recorder
            .event(format!("kill -9 and restart of port {}", node.port()));
        node.kill();
        node.start_again();
        let mut client = node.client();
        wait_for("a node that serves again", || {
            client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
        });
    }

    fn fail_over(&mut self, side: usize, replicas: [usize; 2]) {
        let replica = replicas[side];
        wait_until_known_as_replica(&self.cluster, replica);
        let node = &self.cluster.nodes[replica];
        node.wait_until_linked();
        self.recorder.event(format!("failover to port {}", node.port()));
        self.cluster.fail_over(&mut node.client());
        let old = std::mem::replace(&mut self.primaries[side], replica);
        let replicas = self.replicas.iter_mut().flatten();
        replicas
            .filter(|node| **node == replica)
            .for_each(|node| *node = old);
    }

    pub fn finish(mut self) -> Vec<History> {
        for node in self.replicas.into_iter().flatten() {
            servers::check_no_crash(&mut self.cluster.nodes[node], &self.recorder);
        }
        for node in self.primaries {
            servers::record_final_state(&mut self.cluster.nodes[node], &self.recorder);
        }
        vec![self.recorder.history()]
    }
}
