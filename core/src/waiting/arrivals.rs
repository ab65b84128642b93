//! How many requests wait, and for how long the oldest of them has: INFO walks no queue.

use std::collections::VecDeque;

use crate::collections::Shrink;
use crate::time::Instant;

/// The number of waiters that arrived in each millisecond, in order. Those that arrive together share an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    entries: VecDeque<Entry>,
    /// The entries without waiters: those at the ends are removed at once, the others when they are the larger part.
    empty: usize,
    waiters: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ms: i64,
    waiters: usize,
}

const MICROS_PER_MS: i64 = 1_000;

impl Arrivals {
    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    /// The millisecond in which the oldest waiter arrived.
    pub(super) fn first(&self) -> Option<Instant> {
        let first = self.entries.front()?;
        Some(Instant::from_micros(first.ms.saturating_mul(MICROS_PER_MS)))
    }

    /// A waiter that arrives now: later than all others.
    pub(super) fn add(&mut self, since: Instant) {
        let ms = ms_of(since);
        self.waiters = self.waiters.saturating_add(1);
        match self.entries.back_mut() {
            Some(last) if last.ms >= ms => last.waiters = last.waiters.saturating_add(1),
            _ => self.entries.push_back(Entry { ms, waiters: 1 }),
        }
    }

    pub(super) fn remove(&mut self, since: Instant) {
        let ms = ms_of(since);
        let place = match self.entries.front() {
            Some(first) if first.ms >= ms => 0,
            _ => self.entries.partition_point(|entry| entry.ms < ms),
        };
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        self.waiters = self.waiters.saturating_sub(1);
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.waiters == 0 {
            self.empty = self.empty.saturating_add(1);
            self.remove_empty();
        }
    }

    fn remove_empty(&mut self) {
        while self.entries.front().is_some_and(Entry::is_empty) {
            self.entries.pop_front();
            self.empty = self.empty.saturating_sub(1);
        }
        while self.entries.back().is_some_and(Entry::is_empty) {
            self.entries.pop_back();
            self.empty = self.empty.saturating_sub(1);
        }
        if self.empty > self.entries.len() / 2 {
            self.entries.retain(|entry| !entry.is_empty());
            self.empty = 0;
        }
        self.entries.shrink_if_sparse();
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.waiters == 0
    }
}

fn ms_of(since: Instant) -> i64 {
    since.as_micros().div_euclid(MICROS_PER_MS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Any waiters leave in any order.
    #[test]
    fn arrivals_equal_a_map_of_counts() {
        let (mut arrivals, mut waiting) = (Arrivals::default(), Vec::new());
        let mut random = 1_u64;
        for round in 0..20_000_i64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let choice = (random >> 33) as usize;
            if waiting.is_empty() || choice.is_multiple_of(2) && waiting.len() < 200 {
                let since = Instant::from_micros(round * 400);
                arrivals.add(since);
                waiting.push(since);
            } else {
                arrivals.remove(waiting.swap_remove(choice / 2 % waiting.len()));
            }
            let mut counts = BTreeMap::new();
            for since in &waiting {
                *counts.entry(ms_of(*since)).or_insert(0) += 1;
            }
            let first = counts.keys().next().map(|ms| ms * MICROS_PER_MS);
            assert_eq!(arrivals.first().map(Instant::as_micros), first);
            assert_eq!(arrivals.waiters(), waiting.len());
            assert!(arrivals.entries.len() <= 2 * counts.len().max(1));
        }
    }
}
