//! A network partition with clients on both sides: the old primary does not know of the new one.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::group::CLOSED_PORT;
use super::{ScenarioRun, Workloads};
use crate::clients::{ClientPool, Route};
use crate::history::{History, Recorder};
use crate::servers;

/// Pairs of servers that run in parallel.
const PAIRS: u32 = 3;
const WORKERS_ON_A_SIDE: usize = 4;
const LEASE_MS: u64 = 400;
/// The smallest possible limit.
const LAG_LIMIT: &str = "min-replicas-max-lag 1";
/// A primary checks the lag of its replicas once a second, in whole seconds: it stops within 3 s.
const FAILOVER_MS: u64 = 4_000;

pub fn partitions(run: &mut ScenarioRun, old: OldPrimary, workload: Workloads) -> Vec<History> {
    run.in_parallel(PAIRS, move |run| partitions_of_pair(run, old, workload))
}

/// Behaviour of the old primary during the partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OldPrimary {
    KeepsServing,
    /// It stops accepting writes, because no replica acknowledges them.
    NeedsReplica,
    /// It can tell nobody of a grant, because no replica has it. Nobody waits, and there is no grace period.
    NeedsAcknowledgement,
}

impl OldPrimary {
    /// The setting that a primary has while its replica follows it.
    fn setting(self) -> &'static str {
        match self {
            Self::KeepsServing | Self::NeedsReplica => "min-replicas-to-write",
            Self::NeedsAcknowledgement => "dlock.min-sync-replicas",
        }
    }

    fn replicas(self) -> u32 {
        u32::from(self != Self::KeepsServing)
    }

    fn grace_ms(self) -> u64 {
        match self {
            Self::NeedsAcknowledgement => 0,
            Self::KeepsServing | Self::NeedsReplica => LEASE_MS,
        }
    }

    fn failover_ms(self) -> u64 {
        match self {
            Self::KeepsServing | Self::NeedsAcknowledgement => 0,
            Self::NeedsReplica => FAILOVER_MS,
        }
    }
}

fn partitions_of_pair(run: &mut ScenarioRun, old: OldPrimary, workload: Workloads) -> History {
    let mut pair = Pair::start(old);
    let workload = workload(LEASE_MS);
    let mut start = |name, route| {
        ClientPool::start(
            WORKERS_ON_A_SIDE,
            name,
            route,
            &pair.recorder,
            &workload,
            &mut run.rng,
        )
    };
    let pools = [start("near", &pair.near), start("far", &pair.far)];
    for _ in 0..run.count {
        run.pause(LEASE_MS / 2..=LEASE_MS * 2);
        pair.partition();
        thread::sleep(Duration::from_millis(old.failover_ms()));
        pair.promote();
        // Up to twice the grace period.
        run.pause(LEASE_MS..=LEASE_MS * 2);
        pair.kill_old_primary_and_heal();
    }
    pools.into_iter().for_each(ClientPool::finish);
    pair.finish()
}

/// A primary and a replica that connects through a proxy.
struct Pair {
    primary: Server,
    replica: Server,
    network: Proxy,
    /// Clients on the old primary's side.
    near: Route,
    /// Clients on the replica's side of the partition.
    far: Route,
    recorder: Recorder,
    term: u32,
    old: OldPrimary,
}

impl Pair {
    fn start(old: OldPrimary) -> Self {
        let config = format!("dlock.failover-grace-ms {}\n{LAG_LIMIT}", old.grace_ms());
        let (mut primary, mut replica) = (Server::with(&config), Server::with(&config));
        // A restarted primary must come back as a replica: late requests of clients may still reach it.
        for server in [&mut primary, &mut replica] {
            server.add_config(&format!("replicaof 127.0.0.1 {CLOSED_PORT}"));
        }
        let route = |server: &Server| Route::to(server.port(), 0);
        let pair = Self {
            network: Proxy::to(primary.port()),
            near: route(&primary),
            far: route(&primary),
            primary,
            replica,
            recorder: Recorder::default(),
            term: 0,
            old,
        };
        pair.heal();
        pair
    }

    /// Attaches the replica, which the primary then needs.
    fn heal(&self) {
        let port = self.network.port();
        self.replica.client().ok(&format!("REPLICAOF 127.0.0.1 {port}"));
        self.replica.wait_until_linked();
        servers::wait_for_replication(&self.primary, 1);
        let mut client = self.primary.client();
        client.config_set(self.old.setting(), &self.old.replicas().to_string());
    }

    /// Drops all traffic between the two servers. Connections stay open.
    fn partition(&self) {
        self.recorder.event("network partition begins");
        self.network.freeze(Way::ToServer);
        self.network.freeze(Way::ToClient);
    }

    fn promote(&mut self) {
        let mut client = self.replica.client();
        client.config_set(self.old.setting(), "0");
        client.ok("REPLICAOF NO ONE");
        self.term += 1;
        self.recorder
            .event(format!("port {} promoted", self.replica.port()));
        self.far.set(self.replica.port(), self.term);
    }

    /// Redirects all clients to the new primary and restarts the old one as its replica.
    fn kill_old_primary_and_heal(&mut self) {
        self.recorder.event(format!(
            "kill -9 of the old primary, port {}",
            self.primary.port()
        ));
        servers::record_lists(&self.primary, &self.recorder, false);
        self.primary.kill();
        self.near.set(self.replica.port(), self.term);
        self.primary.start_again();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.network = Proxy::to(self.primary.port());
        self.heal();
    }

    fn finish(mut self) -> History {
        servers::check_no_crash(&mut self.replica, &self.recorder);
        servers::record_final_state(&mut self.primary, &self.recorder);
        self.recorder.history()
    }
}
