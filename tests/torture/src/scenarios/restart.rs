//! A server is killed with `kill -9` and restarted.

use dlock_testkit::Server;

use super::{ScenarioRun, Workloads};
use crate::clients::{Route, Workload};
use crate::faults::AofFile;
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;
/// A power failure loses about the last second of writes.
const MAX_LOST_MS: u64 = 1_000;

/// Persistence settings of a scenario.
#[derive(Clone, Copy)]
struct Persistence {
    /// Values of `appendfsync`, used in turn. Empty: no AOF.
    fsync: &'static [&'static str],
    /// Simulates a power failure: the last writes are not on disk.
    loses_tail: bool,
    grace_ms: u64,
}

const ALWAYS: Persistence = Persistence {
    fsync: &["always"],
    loses_tail: false,
    grace_ms: 0,
};
const SOMETIMES: Persistence = Persistence {
    fsync: &["everysec", "no"],
    loses_tail: true,
    grace_ms: 0,
};
const NONE: Persistence = Persistence {
    fsync: &[],
    loses_tail: false,
    grace_ms: 0,
};

/// Every acknowledged change is on disk: nothing may be lost.
pub fn fsync_always(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, ALWAYS, Workload::mixed)
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
    let mut server = Server::with(&format!("{}\n{policy}", persistence.config()));
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 0);
    let workload = Workload {
        keeps_owner: true,
        ..workload(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    for term in 1..=run.count {
        run.pause(20..=LEASE_MS * 2);
        kill(run, &mut server, persistence, &recorder);
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

/// `kill -9`. For a power failure, also truncates the AOF to its length some time before.
fn kill(run: &mut ScenarioRun, server: &mut Server, persistence: Persistence, recorder: &Recorder) {
    if !persistence.loses_tail {
        recorder.event("kill -9 and restart of the server");
        servers::record_lists(server, recorder, false);
        return server.kill();
    }
    let log = AofFile::of(server);
    let on_disk = log.length();
    run.pause(0..=MAX_LOST_MS);
    recorder.event(format!("power failure: AOF truncated to {on_disk} bytes"));
    servers::record_lists(server, recorder, false);
    server.kill();
    log.truncate(on_disk);
}
