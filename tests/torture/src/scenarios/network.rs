//! A bad network between clients and a server that lives.

use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::ScenarioRun;
use crate::clients::{ClientPool, Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 5;
const LEASE_MS: u64 = 400;
/// Clients give up early: a frozen network is longer.
const REPLY_TIMEOUT: Duration = Duration::from_millis(250);
const LONGEST_FREEZE_MS: u64 = 600;
const LONGEST_DELAY_MS: u64 = 80;
/// About as long as a few requests: a cut falls inside one.
const MOST_BYTES: usize = 300;

/// It delays, freezes one way or both, cuts after some bytes or at once, and refuses connections.
pub fn bad(run: &mut ScenarioRun) -> Vec<History> {
    let mut server = Server::start();
    let recorder = Recorder::default();
    let networks = [Proxy::to(server.port()), Proxy::to(server.port())];
    let workload = Workload {
        reply_timeout: REPLY_TIMEOUT,
        ..Workload::mixed(LEASE_MS)
    };
    let mut pools = Vec::new();
    for (network, name) in networks.iter().zip(["near", "far"]) {
        let route = Route::to(server.port(), 1);
        route.set_via_proxy(network.port(), server.port(), 1);
        pools.push(ClientPool::start(
            WORKERS,
            name,
            &route,
            &recorder,
            &workload,
            &mut run.rng,
        ));
    }
    for _ in 0..run.count {
        run.pause(5..=50);
        let network = &networks[run.rng.usize(..networks.len())];
        one_fault(run, network, &recorder);
    }
    networks.iter().for_each(heal);
    pools.into_iter().for_each(ClientPool::finish);
    servers::check_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

fn one_fault(run: &mut ScenarioRun, network: &Proxy, recorder: &Recorder) {
    let way = if run.rng.bool() {
        Way::ToServer
    } else {
        Way::ToClient
    };
    match run.rng.u8(..5) {
        0 => {
            let delay = Duration::from_millis(run.rng.u64(..=LONGEST_DELAY_MS));
            recorder.event(format!("the network is slow {way:?}: {delay:?}"));
            network.delay(way, delay);
        }
        1 => {
            recorder.event(format!("nothing passes {way:?}"));
            network.freeze(way);
            if run.rng.bool() {
                network.freeze(Way::ToServer);
                network.freeze(Way::ToClient);
            }
            run.pause(1..=LONGEST_FREEZE_MS);
            if run.rng.bool() {
                network.cut();
            }
            network.thaw();
        }
        2 => {
            let bytes = run.rng.usize(1..=MOST_BYTES);
            recorder.event(format!("a connection is cut {way:?} after {bytes} bytes"));
            network.cut_after(way, bytes);
        }
        3 => {
            recorder.event("all connections are cut");
            network.cut();
        }
        _ => {
            recorder.event("new connections are refused, the old ones cut");
            network.refuse(true);
            network.cut();
            run.pause(1..=LONGEST_FREEZE_MS / 2);
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
