use std::thread;
use std::time::{Duration, Instant};

/// For how long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What a busy machine may add to a time that SPEC promises.
pub const SLOW_MACHINE: Duration = Duration::from_secs(3);

/// Polls until `condition` holds; panics when it never does.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain for: {what}"
        );
        thread::sleep(POLL_INTERVAL);
    }
}

/// Lets real time pass, for a test of what time alone must do, or must not do.
pub fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// Fails when more than `limit`, and what a slow machine adds, has passed since `start`.
#[track_caller]
pub fn took_at_most(limit: Duration, start: Instant) {
    let took = start.elapsed();
    assert!(
        took <= limit + SLOW_MACHINE,
        "took {took:?}, allowed is {limit:?}"
    );
}
