//! The state of the view and how keys change it. Pure.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sampler::Sample;
use crate::lock::NamedLock;
use crate::text::display_name;

/// The width of the widest sparkline.
const HISTORY: usize = 200;

#[derive(Debug, Default)]
pub struct State {
    sample: Sample,
    pub acquired: Rate,
    pub grants_from_queue: Rate,
    pub expired: Rate,
    pub waiting: History,
    /// The grants seen for each lock.
    grants: HashMap<Vec<u8>, Grants>,
    pub order: Order,
    pub filter: String,
    pub mode: Mode,
    /// The name of the selected lock.
    selected: Option<Vec<u8>>,
    pub is_paused: bool,
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
    Help,
}

/// The sort order of the list, descending except by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Waiting,
    Grants,
    Held,
    Waited,
    Name,
}

impl Order {
    const ALL: [Self; 5] = [Self::Waiting, Self::Grants, Self::Held, Self::Waited, Self::Name];

    pub fn title(self) -> &'static str {
        match self {
            Self::Waiting => "most waiting",
            Self::Grants => "most grants",
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

#[derive(Debug, Default)]
struct Grants {
    fences: HashSet<u64>,
    seen: u64,
    /// Samples since the lock was last seen held.
    samples_missed: usize,
}

/// The most recent values, oldest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<u64>);

impl History {
    fn push(&mut self, value: u64) {
        if self.0.len() == HISTORY {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// Up to `count` of the most recent values.
    pub fn last(&self, count: usize) -> Vec<u64> {
        self.0
            .iter()
            .skip(self.0.len().saturating_sub(count))
            .copied()
            .collect()
    }

    pub fn newest(&self) -> u64 {
        self.0.back().copied().unwrap_or(0)
    }
}

/// The rate of a counter.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<u64>,
    pub per_second: History,
}

impl Rate {
    fn update(&mut self, value: u64, elapsed: Duration) {
        if let Some(last) = self.last {
            // A restart of the server resets its counters.
            let increase = value.checked_sub(last).unwrap_or(value);
            let rate = increase as f64 / elapsed.as_secs_f64().max(0.001);
            self.per_second.push(rate.round() as u64);
        }
        self.last = Some(value);
    }
}

/// A row of the list.
pub struct Row<'a> {
    pub lock: &'a NamedLock,
    pub grants: u64,
}

impl Row<'_> {
    pub fn held(&self) -> Duration {
        self.lock
            .holders()
            .iter()
            .map(|holder| holder.held)
            .max()
            .unwrap_or_default()
    }

    pub fn waited(&self) -> Duration {
        self.lock
            .waiters()
            .iter()
            .map(|waiter| waiter.waited)
            .max()
            .unwrap_or_default()
    }
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
        if self.is_paused {
            return;
        }
        let count = |field: &str| sample.counters.get(field).copied().unwrap_or(0);
        self.acquired.update(count("acquired"), sample.elapsed);
        self.grants_from_queue
            .update(count("grants_from_queue"), sample.elapsed);
        self.expired.update(count("expired"), sample.elapsed);
        self.waiting.push(count("waiters"));
        self.count_grants(&sample.locks);
        self.sample = sample;
        self.keep_selection();
    }

    /// Counts new fencing tokens. Grants that start and end between two samples are missed. A lock that becomes free is
    /// remembered for as long as the graphs cover.
    fn count_grants(&mut self, locks: &[NamedLock]) {
        for grants in self.grants.values_mut() {
            grants.samples_missed += 1;
        }
        for lock in locks {
            let fences: HashSet<u64> = lock.holders().iter().map(|holder| holder.fence).collect();
            let known = self.grants.entry(lock.name.clone());
            let grants = known.or_insert_with(|| Grants {
                fences: fences.clone(),
                ..Grants::default()
            });
            grants.seen += fences.difference(&grants.fences).count() as u64;
            grants.fences = fences;
            grants.samples_missed = 0;
        }
        self.grants.retain(|_, grants| grants.samples_missed < HISTORY);
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

    /// The upper bound of the bucket with this percentile of a histogram: zero without values, `None` beyond all bounds.
    pub fn percentile(&self, histogram: &str, percent: u64) -> Option<Duration> {
        let buckets = self
            .sample
            .histograms
            .get(histogram)
            .map_or(&[][..], Vec::as_slice);
        let total = buckets.last().map_or(0, |(_, count)| *count);
        let rank = total.saturating_mul(percent).div_ceil(100).max(1);
        let bucket = buckets.iter().find(|(_, count)| *count >= rank);
        let bound_ms = bucket.map_or(Some(0), |(bound_ms, _)| *bound_ms);
        bound_ms.map(Duration::from_millis)
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
    pub fn rows(&self) -> Vec<Row<'_>> {
        let filter = self.filter.to_lowercase();
        let locks = self.sample.locks.iter();
        let mut rows: Vec<Row<'_>> = locks
            .filter(|lock| display_name(&lock.name).to_lowercase().contains(&filter))
            .map(|lock| Row {
                lock,
                grants: self.grants.get(&lock.name).map_or(0, |grants| grants.seen),
            })
            .collect();
        rows.sort_by(|a, b| a.lock.name.cmp(&b.lock.name));
        match self.order {
            Order::Waiting => rows.sort_by_key(|row| Reverse(row.lock.waiting())),
            Order::Grants => rows.sort_by_key(|row| Reverse(row.grants)),
            Order::Held => rows.sort_by_key(|row| Reverse(row.held())),
            Order::Waited => rows.sort_by_key(|row| Reverse(row.waited())),
            Order::Name => {}
        }
        rows
    }

    /// The index of the selected row.
    pub fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows().iter().position(|row| row.lock.name == *selected)
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
                KeyCode::Char(' ') => self.is_paused = !self.is_paused,
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.mode = Mode::List,
                _ => {}
            },
            Mode::Help => self.mode = Mode::List,
        }
        self.keep_selection();
    }

    fn on_list_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.should_quit = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
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
        self.selected = row.map(|row| row.lock.name.clone());
    }

    /// Keeps the selected lock while it is in the list. A lock that is shown on its own stays selected even if it is
    /// released and acquired again.
    fn keep_selection(&mut self) {
        if self.mode != Mode::Lock && self.position().is_none() {
            self.selected = self.rows().first().map(|row| row.lock.name.clone());
        }
    }
}

#[cfg(test)]
pub mod tests;
