//! A server that is killed by `kill -9` and started again.

use dlock_testkit::Server;

use super::ScenarioRun;
use crate::clients::{Route, Workload};
use crate::faults::AofFile;
use crate::history::{History, Recorder};
use crate::servers;

const WORKERS: usize = 6;
const LEASE_MS: u64 = 400;
/// A machine that dies takes with it what the server has written in the last second, about.
const MAX_LOST_MS: u64 = 1_000;

/// What a server of these scenarios survives on.
#[derive(Clone, Copy)]
struct Persistence {
    /// Each start takes the next one for `appendfsync`. None: there is no log.
    fsync: &'static [&'static str],
    /// The machine dies, not the process alone: what was written last is not on disk.
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

/// Each reply was on disk before: nothing may be lost.
pub fn fsync_always(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, ALWAYS)
}

/// The log lacks its tail, so a grace covers it.
pub fn lost_tail_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, SOMETIMES.with_grace())
}

/// The log lacks its tail, and nothing covers it.
pub fn lost_tail(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, SOMETIMES)
}

/// All is lost, so a grace covers it.
pub fn no_data_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, NONE.with_grace())
}

/// All is lost, and nothing covers it.
pub fn no_data(run: &mut ScenarioRun) -> Vec<History> {
    restarts(run, NONE)
}

impl Persistence {
    /// Of the longest lease.
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

    /// For the start of that number.
    fn fsync_at(self, start: u32) -> Option<String> {
        let policy = self.fsync.iter().cycle().nth(start as usize)?;
        Some(format!("appendfsync {policy}"))
    }
}

fn restarts(run: &mut ScenarioRun, persistence: Persistence) -> Vec<History> {
    let policy = persistence.fsync_at(0).unwrap_or_default();
    let mut server = Server::with(&format!("{}\n{policy}", persistence.config()));
    let recorder = Recorder::default();
    let route = Route::to(server.port(), 0);
    let workload = Workload {
        keeps_owner: true,
        ..Workload::mixed(LEASE_MS)
    };
    let pool = run.start_clients(WORKERS, &route, &recorder, &workload);
    for term in 1..=run.count {
        run.pause(20..=LEASE_MS * 2);
        kill(run, &mut server, persistence, &recorder);
        if let Some(policy) = persistence.fsync_at(term) {
            recorder.event(policy.clone());
            server.add_config(&policy);
        }
        // Before anybody can reach the new process. It nearly always gets the port of the old one.
        route.set(server.port(), term);
        server.start_again();
        route.set(server.port(), term);
        recorder.event("the server is back");
    }
    pool.finish();
    servers::check_final_state(&mut server, &recorder);
    vec![recorder.history()]
}

/// `kill -9`. If the machine dies with the process, so does what came into the log in the time before.
fn kill(run: &mut ScenarioRun, server: &mut Server, persistence: Persistence, recorder: &Recorder) {
    if !persistence.loses_tail {
        recorder.event("kill -9 of the server, and a start");
        return server.kill();
    }
    let log = AofFile::of(server);
    let on_disk = log.length();
    run.pause(0..=MAX_LOST_MS);
    recorder.event(format!(
        "death of the server, and of its log after {on_disk} bytes"
    ));
    server.kill();
    log.cut_to(on_disk);
}
