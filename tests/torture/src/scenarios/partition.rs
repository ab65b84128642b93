//! A network that parts, with clients on both sides, and an old primary that does not know of the new one.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::Job;
use super::group::NOBODY;
use crate::clients::{Crew, Habits, Route};
use crate::history::{History, Journal};
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
pub fn goes_on(job: &mut Job) -> Vec<History> {
    job.side_by_side(PAIRS, |job| partitions(job, OldPrimary::GoesOn))
}

/// The old primary stops, because no replica confirms.
pub fn min_replicas(job: &mut Job) -> Vec<History> {
    job.side_by_side(PAIRS, |job| partitions(job, OldPrimary::NeedsReplica))
}

/// The same, but the old primary's process sleeps meanwhile, and wakes when the new one serves.
pub fn wakes(job: &mut Job) -> Vec<History> {
    job.side_by_side(PAIRS, |job| partitions(job, OldPrimary::SleepsAndWakes))
}

/// What the old primary does while the network is parted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldPrimary {
    GoesOn,
    NeedsReplica,
    SleepsAndWakes,
}

impl OldPrimary {
    fn min_replicas(self) -> u32 {
        u32::from(self != Self::GoesOn)
    }

    fn failover_ms(self) -> u64 {
        if self == Self::GoesOn { 0 } else { FAILOVER_MS }
    }
}

fn partitions(job: &mut Job, old: OldPrimary) -> History {
    let mut pair = Pair::start(old.min_replicas());
    let habits = Habits::mixed(LEASE_MS);
    let mut hire = |name, route| {
        Crew::hire(
            WORKERS_ON_A_SIDE,
            name,
            route,
            &pair.journal,
            &habits,
            &mut job.rng,
        )
    };
    let crews = [hire("near", &pair.near), hire("far", &pair.far)];
    for _ in 0..job.count {
        job.pause(LEASE_MS / 2..=LEASE_MS * 2);
        pair.part();
        if old == OldPrimary::SleepsAndWakes {
            pair.send_to_sleep();
        }
        thread::sleep(Duration::from_millis(old.failover_ms()));
        pair.promote();
        // As long as its grace, and as long again.
        job.pause(LEASE_MS..=LEASE_MS * 2);
        if old == OldPrimary::SleepsAndWakes {
            pair.wake();
            job.pause(LEASE_MS..=LEASE_MS * 2);
        }
        pair.kill_old_primary_and_unite();
    }
    crews.into_iter().for_each(Crew::dismiss);
    pair.settle()
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
    journal: Journal,
    term: u32,
    min_replicas: u32,
}

impl Pair {
    fn start(min_replicas: u32) -> Self {
        let config = format!("dlock.failover-grace-ms {LEASE_MS}\n{LAG_LIMIT}");
        let (mut primary, mut replica) = (Server::with(&config), Server::with(&config));
        // A primary that comes back must not be one for a moment: a client may still be on its way to it.
        for server in [&mut primary, &mut replica] {
            server.add_config(&format!("replicaof 127.0.0.1 {NOBODY}"));
        }
        let route = |server: &Server| Route::to(server.port(), 0);
        let pair = Self {
            network: Proxy::to(primary.port()),
            near: route(&primary),
            far: route(&primary),
            primary,
            replica,
            journal: Journal::default(),
            term: 0,
            min_replicas,
        };
        pair.unite();
        pair
    }

    /// The replica follows, and from then on the primary relies on it.
    fn unite(&self) {
        let port = self.network.port();
        self.replica.client().ok(&format!("REPLICAOF 127.0.0.1 {port}"));
        self.replica.wait_until_linked();
        servers::wait_for_stream(&self.primary, 1);
        let mut client = self.primary.client();
        client.config_set("min-replicas-to-write", &self.min_replicas.to_string());
    }

    /// Nothing passes between the two, in either direction, and neither is told.
    fn part(&self) {
        self.journal.event("the network parts");
        self.network.freeze(Way::ToServer);
        self.network.freeze(Way::ToClient);
    }

    fn send_to_sleep(&self) {
        self.journal.event("SIGSTOP of the old primary");
        servers::stop(&self.primary);
    }

    fn wake(&self) {
        self.journal.event("SIGCONT of the old primary");
        servers::resume(&self.primary);
    }

    fn promote(&mut self) {
        let mut client = self.replica.client();
        client.config_set("min-replicas-to-write", "0");
        client.ok("REPLICAOF NO ONE");
        self.term += 1;
        self.journal
            .event(format!("port {} is promoted", self.replica.port()));
        self.far.set(self.replica.port(), self.term);
    }

    /// All clients go to the new primary. The old one comes back as its replica.
    fn kill_old_primary_and_unite(&mut self) {
        self.journal.event(format!(
            "kill -9 of the old primary, port {}",
            self.primary.port()
        ));
        self.primary.kill();
        self.near.set(self.replica.port(), self.term);
        self.primary.start_again();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.network = Proxy::to(self.primary.port());
        self.unite();
    }

    fn settle(mut self) -> History {
        servers::expect_no_crash(&mut self.replica, &self.journal);
        servers::settle(&mut self.primary, &self.journal);
        self.journal.history()
    }
}
