//! The state of the view and how keys change it. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sampler::Sample;
use crate::lock::NamedLock;

#[derive(Debug, Default)]
pub struct State {
    pub sample: Sample,
    pub acquired: Rate,
    pub grants_from_queue: Rate,
    pub expired: Rate,
    pub order: Order,
    /// The servers that the command line names.
    pub deployment: String,
    /// Why the last sample failed.
    pub error: Option<String>,
    pub should_quit: bool,
}

/// The sort order of the list, descending except by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Waiting,
    Held,
    Waited,
    Name,
}

impl Order {
    pub fn title(self) -> &'static str {
        match self {
            Self::Waiting => "most waiting",
            Self::Held => "longest held",
            Self::Waited => "longest wait",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Held,
            Self::Held => Self::Waited,
            Self::Waited => Self::Name,
            Self::Name => Self::Waiting,
        }
    }
}

/// The rate of a counter.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<u64>,
    pub per_second: u64,
}

impl Rate {
    fn update(&mut self, value: u64, elapsed: Duration) {
        if let Some(last) = self.last {
            // A restart of the server resets its counters.
            let increase = value.checked_sub(last).unwrap_or(value);
            let rate = increase as f64 / elapsed.as_secs_f64().max(0.001);
            self.per_second = rate.round() as u64;
        }
        self.last = Some(value);
    }
}

/// How long the first holder has held the lock.
pub fn held(lock: &NamedLock) -> Duration {
    let held = lock.holders().iter().map(|holder| holder.held);
    held.max().unwrap_or_default()
}

/// How long the first waiter has waited.
pub fn waited(lock: &NamedLock) -> Duration {
    let waited = lock.waiters().iter().map(|waiter| waiter.waited);
    waited.max().unwrap_or_default()
}

impl State {
    pub fn new(deployment: String) -> Self {
        Self {
            deployment,
            ..Self::default()
        }
    }

    /// Adds a sample.
    pub fn update(&mut self, sample: Sample) {
        self.error = sample.unreachable.first().cloned();
        self.sample = sample;
        let elapsed = self.sample.elapsed;
        self.acquired.update(self.counter("acquired"), elapsed);
        self.grants_from_queue
            .update(self.counter("grants_from_queue"), elapsed);
        self.expired.update(self.counter("expired"), elapsed);
    }

    pub fn counter(&self, field: &str) -> u64 {
        self.sample.counters.get(field).copied().unwrap_or(0)
    }

    /// Rejected requests. Late releases are already counted by their error codes.
    pub fn errors(&self) -> u64 {
        let counter = self.sample.counters.iter();
        counter
            .filter(|(field, _)| field.starts_with("errors_") && *field != "errors_late_releases")
            .map(|(_, value)| value)
            .sum()
    }

    /// The locks, sorted.
    pub fn rows(&self) -> Vec<&NamedLock> {
        let mut rows: Vec<&NamedLock> = self.sample.locks.iter().collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        match self.order {
            Order::Waiting => rows.sort_by_key(|lock| Reverse(lock.waiting())),
            Order::Held => rows.sort_by_key(|lock| Reverse(held(lock))),
            Order::Waited => rows.sort_by_key(|lock| Reverse(waited(lock))),
            Order::Name => {}
        }
        rows
    }

    pub fn on_key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => self.should_quit = true,
            KeyCode::Char('q') => self.should_quit = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_per_second_and_survives_server_restart() {
        let mut rate = Rate::default();
        let rates = [100, 110, 110, 4].map(|acquired| {
            rate.update(acquired, Duration::from_secs(2));
            rate.per_second
        });
        assert_eq!(rates, [0, 5, 0, 2]);
    }

    #[test]
    fn error_is_kept_until_next_sample() {
        let error = Some("no server".to_owned());
        let mut state = State {
            error,
            ..State::default()
        };
        state.update(Sample::default());
        assert_eq!(state.error, None);
    }
}
