//! What is shown, and how keys change it. Pure.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sampler::Sample;
use crate::lock::Named;
use crate::text::shown;

/// As many samples as the widest sparkline shows.
const HISTORY: usize = 200;

#[derive(Debug, Default)]
pub struct State {
    sample: Sample,
    /// What happened to the counters, the newest last.
    pub acquired: Rate,
    pub grants_from_queue: Rate,
    pub expired: Rate,
    pub waiting: History,
    /// The fences that each lock had, and how many new ones were seen.
    grants: HashMap<Vec<u8>, Grants>,
    pub order: Order,
    pub filter: String,
    pub mode: Mode,
    /// The lock that the cursor is on.
    chosen: Option<Vec<u8>>,
    pub is_paused: bool,
    /// Why there is nothing new.
    pub trouble: Option<String>,
    is_over: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    List,
    /// A filter is typed.
    Filter,
    /// One lock is looked into.
    Lock,
}

/// What the list is sorted by, the highest first.
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
            Self::Grants => "most grants seen",
            Self::Held => "longest held",
            Self::Waited => "longest waiting",
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
    /// How many looks have not found the lock held since.
    missed: usize,
}

/// The last values, the newest last.
#[derive(Debug, Default)]
pub struct History(VecDeque<u64>);

impl History {
    fn push(&mut self, value: u64) {
        if self.0.len() == HISTORY {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// As many of the last values as there are, up to `count`.
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

/// How fast a counter rises.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<u64>,
    pub per_second: History,
}

impl Rate {
    fn update(&mut self, value: u64, elapsed: Duration) {
        if let Some(last) = self.last {
            // After a restart of the server it begins anew.
            let rise = value.checked_sub(last).unwrap_or(value);
            let rate = rise as f64 / elapsed.as_secs_f64().max(0.001);
            self.per_second.push(rate.round() as u64);
        }
        self.last = Some(value);
    }
}

/// A line of the list.
pub struct Row<'a> {
    pub lock: &'a Named,
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
    /// Takes in what the servers told.
    pub fn update(&mut self, sample: Sample) {
        self.trouble = None;
        if self.is_paused {
            return;
        }
        let count = |field: &str| sample.counted.get(field).copied().unwrap_or(0);
        self.acquired.update(count("acquired"), sample.elapsed);
        self.grants_from_queue
            .update(count("grants_from_queue"), sample.elapsed);
        self.expired.update(count("expired"), sample.elapsed);
        self.waiting.push(count("waiters"));
        self.count_grants(&sample.locks);
        self.sample = sample;
        self.keep_choice();
    }

    /// Fences that are seen for the first time. Grants that come and go between two looks are missed. A lock that
    /// is free for a moment is remembered, as long as it would be in the graphs.
    fn count_grants(&mut self, locks: &[Named]) {
        for grants in self.grants.values_mut() {
            grants.missed += 1;
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
            grants.missed = 0;
        }
        self.grants.retain(|_, grants| grants.missed < HISTORY);
    }

    pub fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn counted(&self, field: &str) -> u64 {
        self.sample.counted.get(field).copied().unwrap_or(0)
    }

    /// Refused requests. The late releases are among them, under the words of their errors.
    pub fn errors(&self) -> u64 {
        let counted = self.sample.counted.iter();
        counted
            .filter(|(field, _)| field.starts_with("errors_") && *field != "errors_late_releases")
            .map(|(_, value)| value)
            .sum()
    }

    pub fn servers(&self) -> usize {
        self.sample.servers
    }

    /// The locks that are shown, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let filter = self.filter.to_lowercase();
        let locks = self.sample.locks.iter();
        let mut rows: Vec<Row<'_>> = locks
            .filter(|lock| shown(&lock.name).to_lowercase().contains(&filter))
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

    /// Where the cursor is among the rows.
    pub fn position(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.rows().iter().position(|row| row.lock.name == *chosen)
    }

    /// The name of the lock that the cursor is on.
    pub fn chosen_name(&self) -> Option<&[u8]> {
        self.chosen.as_deref()
    }

    /// The lock that the cursor is on, unless it has gone.
    pub fn chosen(&self) -> Option<&Named> {
        let chosen = self.chosen.as_ref()?;
        self.sample.locks.iter().find(|lock| lock.name == *chosen)
    }

    pub fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.is_over = true;
            return;
        }
        match self.mode {
            Mode::List => self.press_in_list(key.code),
            Mode::Filter => self.press_in_filter(key.code),
            Mode::Lock => match key.code {
                KeyCode::Char('q') => self.is_over = true,
                KeyCode::Char(' ') => self.is_paused = !self.is_paused,
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.mode = Mode::List,
                _ => {}
            },
        }
        self.keep_choice();
    }

    fn press_in_list(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-10),
            KeyCode::PageDown => self.go(10),
            KeyCode::Enter | KeyCode::Right if self.chosen.is_some() => self.mode = Mode::Lock,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
    }

    fn press_in_filter(&mut self, key: KeyCode) {
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

    fn go(&mut self, by: isize) {
        let at = self.position().unwrap_or(0).saturating_add_signed(by);
        let rows = self.rows();
        let row = rows.get(at.min(rows.len().saturating_sub(1)));
        self.chosen = row.map(|row| row.lock.name.clone());
    }

    /// The cursor stays on its lock as long as that is in the list. A lock that is looked into may go and come.
    fn keep_choice(&mut self) {
        if self.mode != Mode::Lock && self.position().is_none() {
            self.chosen = self.rows().first().map(|row| row.lock.name.clone());
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
pub mod tests;
