//! What the tests of locks and guards share.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Server};
use redis_dlock_quorum::{Event, Settings};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
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

/// The names of the events that a client reports.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    pub fn settings(&self) -> Settings {
        let journal = self.clone();
        Settings::default().on_event(move |event| journal.note(event))
    }

    fn note(&self, event: &Event) {
        let what = format!("{:?}", event.kind);
        let name = what.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(name);
    }

    pub fn count(&self, name: &str) -> usize {
        let names = self.0.lock().unwrap();
        names.iter().filter(|noted| *noted == name).count()
    }
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
