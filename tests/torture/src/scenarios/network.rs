//! A bad network between clients and a healthy server.

use std::time::Duration;

use dlock_testkit::{Proxy, Server, Way};

use super::{ScenarioRun, Workloads};
use crate::clients::{ClientPool, Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 5;
const LEASE_MS: u64 = 400;
/// Shorter than a frozen network, so that clients time out.
const REPLY_TIMEOUT: Duration = Duration::from_millis(250);
const LONGEST_FREEZE_MS: u64 = 600;
const LONGEST_DELAY_MS: u64 = 80;
/// The length of a few requests, so that a cut falls inside one.
const MAX_BYTES: usize = 300;

/// The proxy delays data, freezes one or both directions, cuts connections at once or mid-request, and refuses
/// connections.
pub fn bad(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    let mut server = Server::start();
    let recorder = Recorder::default();
    let networks = [Proxy::to(server.port()), Proxy::to(server.port())];
    let workload = Workload {
        keeps_owner: false,
        reply_timeout: REPLY_TIMEOUT,
        ..workload(LEASE_MS)
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
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

pub(super) fn one_fault(run: &mut ScenarioRun, network: &Proxy, recorder: &Recorder) {
    let way = if run.rng.bool() {
        Way::ToServer
    } else {
        Way::ToClient
    };
    match run.rng.u8(..5) {
        0 => {
            let delay = Duration::from_millis(run.rng.u64(..=LONGEST_DELAY_MS));
            recorder.event(format!("delay of {delay:?} {way:?}"));
            network.delay(way, delay);
        }
        1 => {
            recorder.event(format!("frozen {way:?}"));
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
            let bytes = run.rng.usize(1..=MAX_BYTES);
            recorder.event(format!("connection cut {way:?} after {bytes} bytes"));
            network.cut_after(way, bytes);
        }
        3 => {
            recorder.event("all connections cut");
            network.cut();
        }
        _ => {
            recorder.event("all connections cut, new ones refused");
            network.refuse(true);
            network.cut();
            run.pause(1..=LONGEST_FREEZE_MS / 2);
            network.refuse(false);
        }
    }
}

pub(super) fn heal(network: &Proxy) {
    network.thaw();
    network.refuse(false);
    for way in [Way::ToServer, Way::ToClient] {
        network.delay(way, Duration::ZERO);
    }
}
