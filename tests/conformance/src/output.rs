//! What a driver writes: one JSON object a line, each answer and each event once.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::outcome::Outcome;

/// What a driver has written.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its first line, which says what it is.
    pub hello: Option<Value>,
    pub answers: BTreeMap<u64, (Instant, Value)>,
    /// Locks that it told are lost, and the event.
    pub lost: BTreeMap<u64, (Instant, Value)>,
    /// The keys that it told it waits for, and each event.
    pub waiting: BTreeMap<String, Vec<Value>>,
    /// What the protocol does not allow.
    pub violations: Vec<String>,
}

/// What a driver has written so far, for those who wait for more.
#[derive(Default)]
pub struct Output {
    received: Mutex<Received>,
    changed: Condvar,
}

impl Output {
    pub fn received(&self) -> MutexGuard<'_, Received> {
        self.received
            .lock()
            .expect("no thread panics while it holds this")
    }

    /// What is found, once it is there.
    pub fn wait_for<T>(&self, limit: Duration, find: impl Fn(&Received) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut received = self.received();
        loop {
            if let Some(found) = find(&received) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(received, left);
            received = waited.expect("no thread panics while it holds this").0;
        }
    }

    /// Reads until the driver ends.
    pub fn read(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let at = Instant::now();
            let mut received = self.received();
            if let Err(violation) = received.take(&line, at) {
                received.violations.push(format!("{violation}: {line}"));
            }
            drop(received);
            self.changed.notify_all();
        }
    }
}

impl Received {
    fn take(&mut self, line: &str, at: Instant) -> Outcome {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
        if self.hello.is_none() {
            self.hello = Some(value);
            return Ok(());
        }
        let earlier = match (value["id"].as_u64(), &value["event"], value["of"].as_u64()) {
            (Some(id), _, _) => self.answers.insert(id, (at, value)).map(drop),
            (None, event, Some(of)) if *event == "lost" => self.lost.insert(of, (at, value)).map(drop),
            (None, event, None) if *event == "waiting" => {
                let key = value["key"].as_str().ok_or("an event without a key")?.to_owned();
                self.waiting.entry(key).or_default().push(value);
                None
            }
            _ => return Err("neither an answer nor an event".into()),
        };
        match earlier {
            None => Ok(()),
            Some(()) => Err("told twice".into()),
        }
    }
}
