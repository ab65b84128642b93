//! An append-only file truncated at any byte of its last records, as after a power failure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use dlock_testkit::{Client, Server};

use super::ScenarioRun;
use crate::clients::{LockClient, Route};
use crate::faults::AofFile;
use crate::history::{Acquire, FinalState, History, Limit, Op, Recorder, Reply, Request, Restored, Wait};

const LOG: &str = "appendonly yes\nappendfsync always";
const KEYS: [&str; 3] = ["door", "gate", "pool"];
const OWNERS: [&str; 3] = ["alice", "bob", "carol"];
/// Longer than the scenario takes.
const LEASE_MS: u64 = 600_000;
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const STEPS: usize = 40;
/// The truncation points lie in the records of these steps.
const LAST_STEPS: usize = 12;

/// Truncates the AOF of a few dozen commands at `count` points of the last ones: at every byte if `count` allows.
pub fn every_byte(run: &mut ScenarioRun) -> Vec<History> {
    let mut server = Server::with(LOG);
    let written = write_log(run, &server);
    server.kill();
    let log = AofFile::of(&server);
    let cuts = written.cuts(run.count as usize);
    // From the end backwards: a file can only become shorter.
    cuts.into_iter()
        .rev()
        .map(|length| {
            log.truncate(length);
            restart_on(server.directory(), &written, length)
        })
        .collect()
}

/// The contents of the AOF.
struct Written {
    ops: Vec<Op>,
    /// State of all locks by length of the AOF.
    states: BTreeMap<u64, String>,
}

impl Written {
    /// `count` lengths, spread over the last steps.
    fn cuts(&self, count: usize) -> Vec<u64> {
        let lengths: Vec<u64> = self.states.keys().copied().collect();
        let first = lengths[lengths.len().saturating_sub(LAST_STEPS)];
        let last = lengths[lengths.len() - 1];
        let stride = (last - first).div_ceil(count as u64).max(1);
        (first..=last).step_by(stride as usize).collect()
    }

    fn state_at(&self, length: u64) -> String {
        let states = self.states.range(..=length);
        states.last().map(|(_, state)| state.clone()).unwrap_or_default()
    }
}

/// Performs random acquires, extends and releases in sequence.
fn write_log(run: &mut ScenarioRun, server: &Server) -> Written {
    let recorder = Recorder::default();
    let mut lock_client = LockClient::new(
        "alice".into(),
        Route::to(server.port(), 0).into(),
        recorder.clone(),
        REPLY_TIMEOUT,
    );
    let mut client = server.client();
    let log = AofFile::of(server);
    let mut states = BTreeMap::new();
    for step in 0..STEPS {
        let key = KEYS[run.rng.usize(..KEYS.len())];
        OWNERS[run.rng.usize(..OWNERS.len())].clone_into(&mut lock_client.owner);
        let op = match run.rng.u8(..6) {
            0 => lock_client.release(key, None, run.rng.bool(), None),
            1 => lock_client.extend(key, LEASE_MS, None),
            _ => lock_client.acquire(key, request(key, run.rng.bool().then(|| format!("r{step}")))),
        };
        assert!(op.is_some(), "the server runs");
        states.insert(log.length(), state(&mut client));
    }
    Written {
        ops: recorder.history().ops,
        states,
    }
}

fn request(key: &str, reqid: Option<String>) -> Acquire {
    Acquire {
        lease_ms: LEASE_MS,
        limit: if key == "pool" { Limit::Of(2) } else { Limit::Of(1) },
        wait: Wait::No,
        reqid,
    }
}

/// Starts a server on a copy of the AOF. Records its state and the fences of its next grants.
fn restart_on(directory: &Path, written: &Written, length: u64) -> History {
    let recorder = Recorder::default();
    recorder.event(format!("AOF truncated to {length} bytes, server started on it"));
    match Server::on_copy_of(directory, LOG) {
        Ok(server) => {
            let mut client = server.client();
            recorder.lock().restored.push(Restored {
                after: format!("AOF of {length} bytes"),
                expected: written.state_at(length),
                found: state(&mut client),
            });
            acquire_all(&server, &mut client, &recorder);
        }
        Err(log) => recorder.lock().final_states.push(FinalState {
            port: 0,
            keys: 0,
            waiting: 0,
            inboxes: 0,
            crash: Some(format!(
                "server does not start on an AOF of {length} bytes: {log}"
            )),
        }),
    }
    let mut history = recorder.history();
    // The fences of the lost grants still count; their leases do not.
    history.ops.splice(0..0, written.ops.iter().map(without_lease));
    history
}

/// Acquires each lock for a new owner.
fn acquire_all(server: &Server, client: &mut Client, recorder: &Recorder) {
    let route = Route::to(server.port(), 1);
    let mut lock_client = LockClient::new("dave".into(), route.into(), recorder.clone(), REPLY_TIMEOUT);
    for key in KEYS {
        client.ask::<i64>(&format!("DEL {key}"));
        let op = lock_client.acquire(key, request(key, None));
        let is_granted = op.is_some_and(|op| matches!(op.reply, Reply::Granted { .. }));
        assert!(is_granted, "{key} is free and must be granted");
    }
}

fn without_lease(op: &Op) -> Op {
    let mut op = op.clone();
    if let Reply::Granted { lease_ms, .. } | Reply::Lease(lease_ms) = &mut op.reply {
        *lease_ms = 0;
    }
    if let Request::Extend { lease_ms, .. } = &mut op.request {
        *lease_ms = 0;
    }
    op
}

/// Owners, fences and holds of all locks.
fn state(client: &mut Client) -> String {
    let locks = KEYS.map(|key| {
        let holders = client.find_lock(key).map(|lock| lock.standing());
        format!("{key} {:?}", holders.unwrap_or_default())
    });
    locks.join(", ")
}
