//! A network that parts, with clients on both sides, and an old primary that does not know of the new one.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::ScenarioRun;
use super::group::CLOSED_PORT;
use crate::clients::{ClientPool, Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

/// Pairs of servers that are parted side by side.
const PAIRS: u32 = 3;
const WORKERS_ON_A_SIDE: usize = 4;
const LEASE_MS: u64 = 400;
/// The smallest limit that there is.
const LAG_LIMIT: &str = "min-replicas-max-lag 1";
/// A primary looks once a second how far its replicas lag, in whole seconds: it stops within 3.
const FAILOVER_MS: u64 = 4_000;

/// The old primary goes on.
pub fn keeps_serving(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(PAIRS, |run| partitions(run, OldPrimary::KeepsServing))
}

/// The old primary stops, because no replica confirms.
pub fn min_replicas(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(PAIRS, |run| partitions(run, OldPrimary::NeedsReplica))
}

/// The same, but the old primary's process sleeps meanwhile, and paused when the new one serves.
pub fn paused(run: &mut ScenarioRun) -> Vec<History> {
    run.in_parallel(PAIRS, |run| partitions(run, OldPrimary::IsPaused))
}

/// What the old primary does while the network is parted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldPrimary {
    KeepsServing,
    NeedsReplica,
    IsPaused,
}

impl OldPrimary {
    fn min_replicas(self) -> u32 {
        u32::from(self != Self::KeepsServing)
    }

    fn failover_ms(self) -> u64 {
        if self == Self::KeepsServing {
            0
        } else {
            FAILOVER_MS
        }
    }
}

fn partitions(run: &mut ScenarioRun, old: OldPrimary) -> History {
    let mut pair = Pair::start(old.min_replicas());
    let workload = Workload::mixed(LEASE_MS);
    let mut hire = |name, route| {
        ClientPool::start(
            WORKERS_ON_A_SIDE,
            name,
            route,
            &pair.recorder,
            &workload,
            &mut run.rng,
        )
    };
    let pools = [hire("near", &pair.near), hire("far", &pair.far)];
    for _ in 0..run.count {
        run.pause(LEASE_MS / 2..=LEASE_MS * 2);
        pair.partition();
        if old == OldPrimary::IsPaused {
            pair.pause_primary();
        }
        thread::sleep(Duration::from_millis(old.failover_ms()));
        pair.promote();
        // As long as its grace, and as long again.
        run.pause(LEASE_MS..=LEASE_MS * 2);
        if old == OldPrimary::IsPaused {
            pair.resume_primary();
            run.pause(LEASE_MS..=LEASE_MS * 2);
        }
        pair.kill_old_primary_and_heal();
    }
    pools.into_iter().for_each(ClientPool::finish);
    pair.check_final_state()
}

/// A primary and a replica, with a network between them.
struct Pair {
    primary: Server,
    replica: Server,
    network: Proxy,
    /// Clients on the side of the primary.
    near: Route,
    /// Clients on the side of the replica, once the network has parted.
    far: Route,
    recorder: Recorder,
    term: u32,
    min_replicas: u32,
}

impl Pair {
    fn start(min_replicas: u32) -> Self {
        let config = format!("dlock.failover-grace-ms {LEASE_MS}\n{LAG_LIMIT}");
        let (mut primary, mut replica) = (Server::with(&config), Server::with(&config));
        // A primary that comes back must not be one for a moment: a client may still be on its way to it.
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
            min_replicas,
        };
        pair.heal();
        pair
    }

    /// The replica follows, and from then on the primary relies on it.
    fn heal(&self) {
        let port = self.network.port();
        self.replica.client().ok(&format!("REPLICAOF 127.0.0.1 {port}"));
        self.replica.wait_until_linked();
        servers::wait_for_replication(&self.primary, 1);
        let mut client = self.primary.client();
        client.config_set("min-replicas-to-write", &self.min_replicas.to_string());
    }

    /// Nothing passes between the two, in either direction, and neither is told.
    fn partition(&self) {
        self.recorder.event("the network parts");
        self.network.freeze(Way::ToServer);
        self.network.freeze(Way::ToClient);
    }

    fn pause_primary(&self) {
        self.recorder.event("SIGSTOP of the old primary");
        self.primary.stop();
    }

    fn resume_primary(&self) {
        self.recorder.event("SIGCONT of the old primary");
        self.primary.resume();
    }

    fn promote(&mut self) {
        let mut client = self.replica.client();
        client.config_set("min-replicas-to-write", "0");
        client.ok("REPLICAOF NO ONE");
        self.term += 1;
        self.recorder
            .event(format!("port {} is promoted", self.replica.port()));
        self.far.set(self.replica.port(), self.term);
    }

    /// All clients go to the new primary. The old one comes back as its replica.
    fn kill_old_primary_and_heal(&mut self) {
        self.recorder.event(format!(
            "kill -9 of the old primary, port {}",
            self.primary.port()
        ));
        self.primary.kill();
        self.near.set(self.replica.port(), self.term);
        self.primary.start_again();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.network = Proxy::to(self.primary.port());
        self.heal();
    }

    fn check_final_state(mut self) -> History {
        servers::check_no_crash(&mut self.replica, &self.recorder);
        servers::check_final_state(&mut self.primary, &self.recorder);
        self.recorder.history()
    }
}
