//! One budget for all background jobs in a pass of the server's loop, in which the cron and both timers may be due.

use dlock_core::Instant;

use crate::redis::Gil;
use crate::state::clock::{self, Slice};
use crate::state::module_state::HasState;

/// The most that all jobs of a pass may take.
const BUDGET_MS: u64 = 3;
/// Jobs that took this long leave the next moment to clients.
const LONG_MS: u64 = 1;
const PAUSE_MS: u64 = 1;

pub struct Pass {
    began: Instant,
    budget: Slice,
}

impl Pass {
    /// `None` if there was one a moment ago, and clients come first.
    pub fn begin(gil: &mut Gil<'_>) -> Option<Self> {
        let began = clock::now();
        (gil.state().schedule.next_pass <= began).then(|| Self {
            began,
            budget: Slice::of_ms(BUDGET_MS),
        })
    }

    /// What one job may take, at most this many milliseconds.
    pub fn slice(&self, ms: u64) -> Slice {
        self.budget.part(ms)
    }

    pub fn end(self, gil: &mut Gil<'_>) {
        let now = clock::now();
        if now >= self.began.after_ms(LONG_MS) {
            gil.state().schedule.next_pass = now.after_ms(PAUSE_MS);
        }
    }
}
