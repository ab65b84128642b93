//! How many requests wait, and for how long the oldest of them has: INFO walks no queue.

use std::collections::BTreeMap;

use crate::time::Instant;

/// The number of waiters that arrived in each millisecond. Those that arrive together share an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    by_ms: BTreeMap<i64, usize>,
    waiters: usize,
}

const MICROS_PER_MS: i64 = 1_000;

impl Arrivals {
    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    /// The millisecond in which the oldest waiter arrived.
    pub(super) fn first(&self) -> Option<Instant> {
        let (ms, _) = self.by_ms.first_key_value()?;
        Some(Instant::from_micros(ms.saturating_mul(MICROS_PER_MS)))
    }

    pub(super) fn add(&mut self, since: Instant) {
        let count = self.by_ms.entry(ms_of(since)).or_default();
        *count = count.saturating_add(1);
        self.waiters = self.waiters.saturating_add(1);
    }

    pub(super) fn remove(&mut self, since: Instant) {
        let ms = ms_of(since);
        if let Some(count) = self.by_ms.get_mut(&ms) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_ms.remove(&ms);
            }
            self.waiters = self.waiters.saturating_sub(1);
        }
    }
}

fn ms_of(since: Instant) -> i64 {
    since.as_micros().div_euclid(MICROS_PER_MS)
}
