//! What the tests of locks and guards share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_testkit::{Client, Server};
pub use dlock_testkit::{soon, until};
use redis_dlock_client::{Error, Event, EventKind, Locks, Lost, Settings};
use tokio::runtime::{Builder, Runtime};

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn locks(server: &Server) -> Locks {
    Locks::open(server.url()).expect("the address is well formed")
}

/// One of which this thread is the only one.
pub fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has what a runtime needs")
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
