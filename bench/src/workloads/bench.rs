//! What every workload is given.

use std::path::PathBuf;

use crate::results::progress::Progress;
use crate::steal::WaitBudget;

/// Options of this run.
pub struct Bench {
    /// Fewer rounds and cases.
    pub quick: bool,
    /// The servers of the test matrix, each in its own directory.
    pub servers: Option<PathBuf>,
    pub progress: Progress,
    pub wait_budget: WaitBudget,
}

impl Bench {
    pub fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}
