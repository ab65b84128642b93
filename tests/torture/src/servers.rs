//! Waits for replication, and records the final state of servers.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::Server;

use crate::history::{Element, FinalState, List, Recorder};

/// Time for the last lease to expire and be swept: 2 s at `hz 10`, more on a slow machine.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const REPLICATION_TIMEOUT_MS: u64 = 20_000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Lines that only the log of a crashed server contains.
const CRASH_MARKS: [&str; 5] = [
    "BUG REPORT",
    "ASSERTION FAILED",
    "panicked at",
    "crashed by signal",
    "Guru Meditation",
];

/// Waits until `replicas` replicas receive the replication stream. A link that is up may not stream yet for up to a
/// second, and a plain WAIT also counts replicas that have only acknowledged the snapshot, so this writes first.
pub fn wait_for_replication(primary: &Server, replicas: usize) {
    let mut client = primary.client();
    // A write without a key.
    client.ok("FUNCTION FLUSH");
    let reached: usize = client.ask(&format!("WAIT {replicas} {REPLICATION_TIMEOUT_MS}"));
    let is_expected = reached >= replicas;
    assert!(is_expected, "only {reached} of {replicas} replicas are in sync");
}

/// Records the lists that locks protect, and returns their names.
pub fn record_lists(server: &Server, recorder: &Recorder, is_final: bool) -> Vec<String> {
    let mut client = server.client();
    let names: Vec<String> = client.ask("KEYS {*}:*");
    for name in &names {
        let elements: Vec<String> = client.ask(&format!("LRANGE {name} 0 -1"));
        let elements = elements.iter().map(|text| Element::parse(text));
        recorder.lock().lists.push(List {
            name: name.clone(),
            elements: elements.collect::<Option<_>>().expect("clients push elements"),
            is_final,
        });
    }
    names
}

/// Records the lists of an idle server and deletes them, waits until it is empty, and records its final state.
pub fn record_final_state(server: &mut Server, recorder: &Recorder) {
    if crash(server).is_none() {
        for list in record_lists(server, recorder, true) {
            server.client().ask::<u64>(&format!("DEL {list}"));
        }
    }
    let start = Instant::now();
    let mut end = read_final_state(server);
    while end.crash.is_none() && end.keys + end.waiting + end.inboxes > 0 && start.elapsed() < DRAIN_TIMEOUT {
        thread::sleep(POLL_INTERVAL);
        end = read_final_state(server);
    }
    recorder.lock().final_states.push(end);
}

/// Records only whether the server has crashed, for servers whose data does not matter.
pub fn check_no_crash(server: &mut Server, recorder: &Recorder) {
    let end = FinalState {
        port: server.port(),
        keys: 0,
        waiting: 0,
        inboxes: 0,
        crash: crash(server),
    };
    recorder.lock().final_states.push(end);
}

fn read_final_state(server: &mut Server) -> FinalState {
    let crash = crash(server);
    let (keys, waiting, inboxes) = match crash {
        Some(_) => (0, 0, 0),
        None => {
            let mut client = server.client();
            let mut stat = |name| client.stat(name).unsigned_abs();
            let inboxes = stat("dlock_inboxes") + stat("dlock_inbox_answers");
            let waiting = stat("dlock_waiters");
            (client.ask("DBSIZE"), waiting, inboxes)
        }
    };
    FinalState {
        port: server.port(),
        keys,
        waiting,
        inboxes,
        crash,
    }
}

/// The crash line in the log, or the last line of a server that exited unexpectedly.
fn crash(server: &mut Server) -> Option<String> {
    let log = server.log();
    let marked = log
        .lines()
        .find(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)));
    match marked {
        Some(line) => Some(line.to_owned()),
        None => server.has_exited().then(|| {
            format!(
                "exited unexpectedly; last log line: {}",
                log.lines().last().unwrap_or_default()
            )
        }),
    }
}
