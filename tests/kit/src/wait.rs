use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an expected event. Generous: on a busy machine a Sentinel may pause for 30 s (TILT).
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What a busy machine may add to a promised time.
pub const SLOW_MACHINE: Duration = Duration::from_secs(8);

/// Polls until `condition` holds; panics when it never does.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let is_expected = start.elapsed() < WAIT_TIMEOUT;
        assert!(is_expected, "waited {WAIT_TIMEOUT:?} for: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// As [`wait_for`], and lets other tasks run meanwhile.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}

/// The outcome of what must come to an end.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_TIMEOUT, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("waited {WAIT_TIMEOUT:?} for: {what}"),
    }
}

/// Whether a lease was renewed since this was made: what is left of it has grown between two calls.
pub fn renewed(left: impl Fn() -> Duration) -> impl FnMut() -> bool {
    let mut last = left();
    let mut is_renewed = false;
    move || {
        let now = left();
        is_renewed |= now > last;
        last = now;
        is_renewed
    }
}

/// Whether to act: true at the first call, and at the first after each interval.
pub fn every(interval: Duration) -> impl FnMut() -> bool {
    let mut next = Instant::now();
    move || {
        let is_due = Instant::now() >= next;
        if is_due {
            next = Instant::now() + interval;
        }
        is_due
    }
}

/// Lets real time pass, for what must happen, or must not happen, by time alone.
pub fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// Fails if more than `limit` plus [`SLOW_MACHINE`] has passed since `start`.
#[track_caller]
pub fn assert_elapsed_at_most(limit: Duration, start: Instant) {
    let took = start.elapsed();
    assert!(took <= limit + SLOW_MACHINE, "took {took:?}, allowed: {limit:?}");
}
