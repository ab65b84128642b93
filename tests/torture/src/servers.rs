//! What is done to servers, and what is looked at when they are left alone.

use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::Server;

use crate::history::{FinalState, Recorder};

/// The last lease final_states, and the sweep comes: 2 s at `hz 10`, and a slow machine on top.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_TIMEOUT_MS: u64 = 20_000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What the log of a server says only when it has crashed, or is about to.
const CRASH_MARKS: [&str; 5] = [
    "BUG REPORT",
    "ASSERTION FAILED",
    "panicked at",
    "crashed by signal",
    "Guru Meditation",
];

/// Waits until so many replicas get what their primary does. A link that is up may not stream yet for a
/// second, and WAIT alone does not tell: a replica has confirmed its snapshot before.
pub fn wait_for_replication(primary: &Server, replicas: usize) {
    let mut client = primary.client();
    // A write that concerns no key.
    client.ok("FUNCTION FLUSH");
    let reached: usize = client.ask(&format!("WAIT {replicas} {STREAM_TIMEOUT_MS}"));
    assert!(
        reached >= replicas,
        "only {reached} of {replicas} replicas are in step"
    );
}

/// Waits until a server that nobody asks any more is empty, and writes down what is left on it.
pub fn check_final_state(server: &mut Server, recorder: &Recorder) {
    let start = Instant::now();
    let mut end = read_final_state(server);
    while end.crash.is_none() && (end.keys > 0 || end.waiting > 0) && start.elapsed() < SETTLE_TIMEOUT {
        thread::sleep(POLL_INTERVAL);
        end = read_final_state(server);
    }
    recorder.lock().final_states.push(end);
}

/// As [`check_final_state`], for a server that is only asked whether it lives: its data are another's, or gone.
pub fn check_no_crash(server: &mut Server, recorder: &Recorder) {
    let end = FinalState {
        port: server.port(),
        keys: 0,
        waiting: 0,
        crash: crash(server),
    };
    recorder.lock().final_states.push(end);
}

fn read_final_state(server: &mut Server) -> FinalState {
    let crash = crash(server);
    let (keys, waiting) = match crash {
        Some(_) => (0, 0),
        None => {
            let mut client = server.client();
            let waiting = client.stat("dlock_waiters").unsigned_abs();
            (client.ask("DBSIZE"), waiting)
        }
    };
    FinalState {
        port: server.port(),
        keys,
        waiting,
        crash,
    }
}

/// How a server that nobody has killed has died, if it has; or what its log says that should not be there.
fn crash(server: &mut Server) -> Option<String> {
    let log = server.log();
    let marked = log
        .lines()
        .find(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)));
    match marked {
        Some(line) => Some(line.to_owned()),
        None => server.has_exited().then(|| {
            format!(
                "it has ended; its last words: {}",
                log.lines().last().unwrap_or_default()
            )
        }),
    }
}
