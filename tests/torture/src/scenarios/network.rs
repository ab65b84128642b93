//! A bad network between clients and a server that lives.

use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::Job;
use crate::clients::{Crew, Habits, Route};
use crate::history::{History, Journal};
use crate::servers;

const WORKERS: usize = 5;
const LEASE_MS: u64 = 400;
/// Clients give up early: a frozen network is longer.
const PATIENCE: Duration = Duration::from_millis(250);
const LONGEST_FREEZE_MS: u64 = 600;
const LONGEST_DELAY_MS: u64 = 80;
/// About as long as a few requests: a cut falls inside one.
const MOST_BYTES: usize = 300;

/// It delays, freezes one way or both, cuts after some bytes or at once, and refuses connections.
pub fn bad(job: &mut Job) -> Vec<History> {
    let mut server = Server::start();
    let journal = Journal::default();
    let networks = [Proxy::to(server.port()), Proxy::to(server.port())];
    let habits = Habits {
        patience: PATIENCE,
        ..Habits::mixed(LEASE_MS)
    };
    let mut crews = Vec::new();
    for (network, name) in networks.iter().zip(["near", "far"]) {
        let route = Route::to(server.port(), 1);
        route.set_by_way_of(network.port(), server.port(), 1);
        crews.push(Crew::hire(WORKERS, name, &route, &journal, &habits, &mut job.rng));
    }
    for _ in 0..job.count {
        job.pause(5..=50);
        let network = &networks[job.rng.usize(..networks.len())];
        one_fault(job, network, &journal);
    }
    networks.iter().for_each(heal);
    crews.into_iter().for_each(Crew::dismiss);
    servers::settle(&mut server, &journal);
    vec![journal.history()]
}

fn one_fault(job: &mut Job, network: &Proxy, journal: &Journal) {
    let way = if job.rng.bool() {
        Way::ToServer
    } else {
        Way::ToClient
    };
    match job.rng.u8(..5) {
        0 => {
            let delay = Duration::from_millis(job.rng.u64(..=LONGEST_DELAY_MS));
            journal.event(format!("the network is slow {way:?}: {delay:?}"));
            network.delay(way, delay);
        }
        1 => {
            journal.event(format!("nothing passes {way:?}"));
            network.freeze(way);
            if job.rng.bool() {
                network.freeze(Way::ToServer);
                network.freeze(Way::ToClient);
            }
            job.pause(1..=LONGEST_FREEZE_MS);
            if job.rng.bool() {
                network.cut();
            }
            network.thaw();
        }
        2 => {
            let bytes = job.rng.usize(1..=MOST_BYTES);
            journal.event(format!("a connection is cut {way:?} after {bytes} bytes"));
            network.cut_after(way, bytes);
        }
        3 => {
            journal.event("all connections are cut");
            network.cut();
        }
        _ => {
            journal.event("new connections are refused, the old ones cut");
            network.refuse(true);
            network.cut();
            job.pause(1..=LONGEST_FREEZE_MS / 2);
            network.refuse(false);
        }
    }
}

fn heal(network: &Proxy) {
    network.thaw();
    network.refuse(false);
    for way in [Way::ToServer, Way::ToClient] {
        network.delay(way, Duration::ZERO);
    }
}
