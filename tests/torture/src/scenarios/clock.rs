//! The wall clock jumps by hours, forward and back, while locks are held.

use dlock_testkit::{Client, Server, WallClock};

use super::ScenarioRun;
use crate::clients::{Route, Workload};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 8;
const LEASE_MS: u64 = 300;
const HOUR_S: i64 = 3_600;
/// TTL of a key that must expire when the clock jumps.
const MARKED_S: i64 = 1_000;

/// One server whose clock jumps. Some jumps are followed by a crash and restart.
pub fn jumps(run: &mut ScenarioRun) -> Vec<History> {
    let clock = WallClock::new();
    let config = "appendonly yes\nappendfsync always";
    let mut server = Server::with_environment(config, clock.environment());
    check_that_clock_jumps(&clock, &mut server.client());
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 0);
    let workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    for term in 1..=run.count {
        run.pause(20..=LEASE_MS);
        let hours = run.rng.i64(-5..=5);
        recorder.event(format!("wall clock off by {hours} h"));
        clock.set(hours * HOUR_S);
        if run.rng.u8(..5) == 0 {
            recorder.event("kill -9 and restart of the server");
            server.kill();
            route.set(server.port(), term);
            server.start_again();
            route.set(server.port(), term);
        }
    }
    pool.finish();
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// Without this check, the scenario would pass if the fault injection did not work.
fn check_that_clock_jumps(clock: &WallClock, client: &mut Client) {
    client.ok(&format!("SET marked value EX {MARKED_S}"));
    clock.set(MARKED_S + 1);
    assert!(!client.exists("marked"), "the clock of the server does not jump");
    clock.set(0);
}
