//! One budget for all background jobs in a pass of the server's loop, in which the cron and both timers may be due.

use super::host::Process;
use crate::time::Instant;

/// The most that all jobs of a pass may take.
const BUDGET_MS: u64 = 3;
/// Jobs that took this long leave the next moment to clients.
const LONG_MS: u64 = 1;
const PAUSE_MS: u64 = 1;

/// The work that one job does at a time. Clients wait no longer than that.
pub struct Slice(Instant);

impl Slice {
    /// A slice of this many milliseconds from now.
    pub fn of_ms(ms: u64, process: &impl Process) -> Self {
        Self(process.now().after_ms(ms))
    }

    /// A part of it, no longer than this many milliseconds from now.
    fn part(&self, ms: u64, process: &impl Process) -> Self {
        Self(process.now().after_ms(ms).min(self.0))
    }

    pub fn is_over(&self, process: &impl Process) -> bool {
        process.now() >= self.0
    }
}

pub struct Pass {
    began: Instant,
    budget: Slice,
}

impl Pass {
    /// `None` if there was one a moment ago, and clients come first.
    pub fn begin(process: &mut impl Process) -> Option<Self> {
        let began = process.now();
        (process.state().schedule.next_pass <= began).then(|| Self {
            began,
            budget: Slice::of_ms(BUDGET_MS, process),
        })
    }

    /// What one job may take, at most this many milliseconds.
    pub fn slice(&self, ms: u64, process: &impl Process) -> Slice {
        self.budget.part(ms, process)
    }

    pub fn end(self, process: &mut impl Process) {
        let now = process.now();
        if now >= self.began.after_ms(LONG_MS) {
            process.state().schedule.next_pass = now.after_ms(PAUSE_MS);
        }
    }
}
