//! A server is killed with `kill -9`, or loses its power, and is restarted.

use dlock_testkit::Server;

use super::{ScenarioRun, Workloads};
use crate::clients::{Route, Workload};
use crate::faults::{AofFile, Power};
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;
/// A server that loses the tail of its log loses about the last second of writes.
const MAX_LOST_MS: u64 = 1_000;

/// Persistence settings of a scenario.
#[derive(Clone, Copy)]
struct Persistence {
    /// Values of `appendfsync`, used in turn. Empty: no AOF.
    fsync: &'static [&'static str],
    lost: Lost,
    grace_ms: u64,
}

/// What a crash loses of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The process is killed. The kernel writes what the process has written.
    Nothing,
    /// The last writes, whatever was synced.
    Tail,
    /// A power failure: all that was not synced.
    Unsynced,
}

const ALWAYS: Persistence = Persistence {
    fsync: &["always"],
    lost: Lost::Nothing,
    grace_ms: 0,
};
const SOMETIMES: Persistence = Persistence {
    fsync: &["everysec", "no"],
    lost: Lost::Tail,
    grace_ms: 0,
};
const NONE: Persistence = Persistence {
    fsync: &[],
    lost: Lost::Nothing,
    grace_ms: 0,
};

/// Every acknowledged change is on disk: nothing may be lost.
pub fn fsync_always(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, ALWAYS, Workload::mixed)
}

/// The power fails: all that was acknowledged was synced before.
pub fn power_failure_always(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    restarts(run, ALWAYS.without_power(), workload)
}

/// The power fails, and not all that was acknowledged was synced.
pub fn power_failure(run: &mut ScenarioRun, fsync: &'static [&'static str]) -> Vec<History> {
    let persistence = Persistence { fsync, ..SOMETIMES };
    restarts(run, persistence.without_power(), Workload::mixed)
}

/// The tail of the AOF is lost; a grace period covers it.
pub fn lost_tail_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, SOMETIMES.with_grace(), Workload::mixed)
}

/// The tail of the AOF is lost, without a grace period.
pub fn lost_tail(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    restarts(run, SOMETIMES, workload)
}

/// All data is lost; a grace period covers it.
pub fn no_data_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, NONE.with_grace(), Workload::mixed)
}

/// All data is lost, without a grace period.
pub fn no_data(run: &mut ScenarioRun, workload: Workloads) -> Vec<History> {
    restarts(run, NONE, workload)
}

impl Persistence {
    fn without_power(self) -> Self {
        Self {
            lost: Lost::Unsynced,
            ..self
        }
    }

    /// A grace period as long as the longest lease.
    fn with_grace(self) -> Self {
        Self {
            grace_ms: LEASE_MS,
            ..self
        }
    }

    fn config(self) -> String {
        let log = if self.fsync.is_empty() { "no" } else { "yes" };
        format!("appendonly {log}\ndlock.startup-grace-ms {}", self.grace_ms)
    }

    /// The `appendfsync` setting of the n-th start.
    fn fsync_at(self, start: u32) -> Option<String> {
        let policy = self.fsync.iter().cycle().nth(start as usize)?;
        Some(format!("appendfsync {policy}"))
    }
}

fn restarts(run: &mut ScenarioRun, persistence: Persistence, workload: Workloads) -> Vec<History> {
    let policy = persistence.fsync_at(0).unwrap_or_default();
    let power = Power::new();
    let config = format!("{}\n{policy}", persistence.config());
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
        match persistence.lost {
            Lost::Nothing => kill(&mut server, &recorder),
            Lost::Tail => lose_tail(run, &mut server, &recorder),
            Lost::Unsynced => lose_power(&mut server, &power, &recorder),
        }
        if let Some(policy) = persistence.fsync_at(term) {
            recorder.event(policy.clone());
            server.add_config(&policy);
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

fn kill(server: &mut Server, recorder: &Recorder) {
    recorder.event("kill -9 and restart of the server");
    servers::record_lists(server, recorder, false);
    server.kill();
}

/// Truncates the AOF to its length some time before.
fn lose_tail(run: &mut ScenarioRun, server: &mut Server, recorder: &Recorder) {
    let log = AofFile::of(server);
    let on_disk = log.length();
    run.pause(0..=MAX_LOST_MS);
    recorder.event(format!("AOF truncated to {on_disk} bytes"));
    servers::record_lists(server, recorder, false);
    server.kill();
    log.truncate(on_disk);
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
