//! What the tests of locks and guards share.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Server};
use redis_dlock_client::{Error, Event, EventKind, Locks, Lost, Settings};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

pub fn locks(server: &Server) -> Locks {
    Locks::open(url(server)).expect("the address is well formed")
}

/// The outcome of what must come to an end.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("waited {PATIENCE:?} in vain for: {what}"),
    }
}

/// Polls until `condition` holds, and lets other tasks run meanwhile.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain for: {what}"
        );
        tokio::time::sleep(ms(2)).await;
    }
}

/// Waits until nobody holds a lock, and nobody waits for it.
pub async fn until_free(client: &mut Client, key: &str) {
    until(&format!("{key} to be free"), || client.find_lock(key).is_none()).await;
}

/// The outcome of a lock that was lost for this reason.
#[track_caller]
pub fn assert_lost<T: std::fmt::Debug>(outcome: Result<T, Error>, expected: Lost) {
    let is_expected = matches!(&outcome, Err(Error::Lost(reason)) if *reason == expected);
    assert!(is_expected, "{outcome:?}");
}

/// The names of the events that a client reports, and of the ways in which holds ended.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    pub fn settings(&self) -> Settings {
        let journal = self.clone();
        Settings::default().on_event(move |event| journal.note(event))
    }

    fn note(&self, event: &Event) {
        let mut names = self.0.lock().unwrap();
        names.push(name(&event.kind));
        if let EventKind::Ended { how, .. } = &event.kind {
            names.push(name(how));
        }
    }

    pub fn count(&self, name: &str) -> usize {
        let names = self.0.lock().unwrap();
        names.iter().filter(|noted| *noted == name).count()
    }
}

fn name(what: &impl std::fmt::Debug) -> String {
    let what = format!("{what:?}");
    what.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

/// How often the server was asked for a command.
pub fn calls(client: &mut Client, command: &str) -> u64 {
    let stats = client.info_section("commandstats");
    stats.get(&format!("cmdstat_{command}")).map_or(0, |stat| {
        let calls = stat.split(',').find_map(|field| field.strip_prefix("calls="));
        calls
            .and_then(|calls| calls.parse().ok())
            .expect("a number of calls")
    })
}

/// Blocks the server for a while.
pub fn stall(server: &Server, time: Duration) {
    let command = format!("DEBUG SLEEP {}", time.as_secs_f64());
    server.client().send(&command);
}
