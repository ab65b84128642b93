//! What the tests of locks and guards share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use dlock_testkit::{soon, until};
use redis_dlock_quorum::{Event, Settings};

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
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
