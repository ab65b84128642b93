//! A server loses its power, or is killed without persistence, and is restarted.

use dlock_testkit::Server;

use super::{ScenarioRun, Workloads};
use crate::clients::{Route, Workload};
use crate::faults::{AofFile, Power};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;
/// No server begins with a grace period.
pub const NO_GRACE: u64 = 0;
/// A grace period as long as the longest lease.
pub const GRACE: u64 = LEASE_MS;

/// With an append-only file, the server loses its power: what was not synced is lost. Without one, it is killed and forgets
/// everything. `fsync`: the values of `appendfsync`, used in turn; empty: no append-only file.
pub fn restarts(run: &mut ScenarioRun, fsync: &[&str], grace_ms: u64, workload: Workloads) -> Vec<History> {
    let has_log = !fsync.is_empty();
    let mut settings = fsync.iter().cycle().map(|policy| format!("appendfsync {policy}"));
    let config = format!(
        "appendonly {}\ndlock.startup-grace-ms {grace_ms}\n{}",
        if has_log { "yes" } else { "no" },
        settings.next().unwrap_or_default()
    );
    let power = Power::new();
    let mut server = Server::with_environment(&config, power.environment());
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 0);
    let workload = Workload {
        keeps_owner: true,
        ..workload(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    for term in 1..=run.count {
        run.pause(20..=LEASE_MS * 2);
        if has_log {
            lose_power(&mut server, &power, &recorder);
        } else {
            recorder.event("kill -9 of the server");
            servers::record_lists(&server, &recorder, false);
            server.kill();
        }
        if let Some(setting) = settings.next() {
            server.add_config(&setting);
            recorder.event(setting);
        }
        // Before clients can reach the new process, which usually gets the same port.
        route.set(server.port(), term);
        server.start_again();
        route.set(server.port(), term);
        recorder.event("server restarted");
    }
    pool.finish();
    servers::record_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// Truncates the AOF to what was synced.
pub(super) fn lose_power(server: &mut Server, power: &Power, recorder: &Recorder) {
    let log = AofFile::of(server);
    servers::record_lists(server, recorder, false);
    server.kill();
    let (synced, lost) = power.fail(&log);
    recorder.event(format!(
        "power failure: {synced} bytes of the AOF are on disk, {lost} are lost"
    ));
}
