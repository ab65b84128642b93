//! The state of the view and how keys change it. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sampler::Sample;
use crate::lock::NamedLock;
use crate::text::display_name;

#[derive(Debug, Default)]
pub struct State {
    sample: Sample,
    pub acquired: Rate,
    pub grants_from_queue: Rate,
    pub expired: Rate,
    pub order: Order,
    pub filter: String,
    pub mode: Mode,
    /// The name of the selected lock.
    selected: Option<Vec<u8>>,
    /// The servers that the command line names.
    pub deployment: String,
    /// Why the last sample failed.
    pub error: Option<String>,
    should_quit: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    List,
    /// The user types a filter.
    Filter,
    /// One lock is shown.
    Lock,
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
    const ALL: [Self; 4] = [Self::Waiting, Self::Held, Self::Waited, Self::Name];

    pub fn title(self) -> &'static str {
        match self {
            Self::Waiting => "most waiting",
            Self::Held => "longest held",
            Self::Waited => "longest wait",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&order| order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
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
        let count = |field: &str| sample.counters.get(field).copied().unwrap_or(0);
        self.acquired.update(count("acquired"), sample.elapsed);
        self.grants_from_queue
            .update(count("grants_from_queue"), sample.elapsed);
        self.expired.update(count("expired"), sample.elapsed);
        self.sample = sample;
        self.keep_selection();
    }

    pub fn set_error(&mut self, why: String) {
        self.error = Some(why);
    }

    pub fn should_quit(&self) -> bool {
        self.should_quit
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

    pub fn role(&self) -> &'static str {
        self.sample.role
    }

    pub fn servers(&self) -> usize {
        self.sample.servers
    }

    /// The locks that match the filter, sorted.
    pub fn rows(&self) -> Vec<&NamedLock> {
        let filter = self.filter.to_lowercase();
        let locks = self.sample.locks.iter();
        let mut rows: Vec<&NamedLock> = locks
            .filter(|lock| display_name(&lock.name).to_lowercase().contains(&filter))
            .collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        match self.order {
            Order::Waiting => rows.sort_by_key(|lock| Reverse(lock.waiting())),
            Order::Held => rows.sort_by_key(|lock| Reverse(held(lock))),
            Order::Waited => rows.sort_by_key(|lock| Reverse(waited(lock))),
            Order::Name => {}
        }
        rows
    }

    /// The index of the selected row.
    pub fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows().iter().position(|row| row.name == *selected)
    }

    /// The name of the selected lock.
    pub fn selected_name(&self) -> Option<&[u8]> {
        self.selected.as_deref()
    }

    /// The selected lock, if it still exists.
    pub fn selected(&self) -> Option<&NamedLock> {
        let selected = self.selected.as_ref()?;
        self.sample.locks.iter().find(|lock| lock.name == *selected)
    }

    pub fn on_key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.should_quit = true;
            return;
        }
        match self.mode {
            Mode::List => self.on_list_key(key.code),
            Mode::Filter => self.on_filter_key(key.code),
            Mode::Lock => match key.code {
                KeyCode::Char('q') => self.should_quit = true,
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.mode = Mode::List,
                _ => {}
            },
        }
        self.keep_selection();
    }

    fn on_list_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.should_quit = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(1),
            KeyCode::PageUp => self.move_cursor(-10),
            KeyCode::PageDown => self.move_cursor(10),
            KeyCode::Enter | KeyCode::Right if self.selected.is_some() => self.mode = Mode::Lock,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
    }

    fn on_filter_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            _ => {}
        }
    }

    fn move_cursor(&mut self, by: isize) {
        let at = self.position().unwrap_or(0).saturating_add_signed(by);
        let rows = self.rows();
        let row = rows.get(at.min(rows.len().saturating_sub(1)));
        self.selected = row.map(|row| row.name.clone());
    }

    /// Keeps the selected lock while it is in the list. A lock that is shown on its own stays selected even if it is
    /// released and acquired again.
    fn keep_selection(&mut self) {
        if self.mode != Mode::Lock && self.position().is_none() {
            self.selected = self.rows().first().map(|row| row.name.clone());
        }
    }
}

#[cfg(test)]
pub mod tests;
