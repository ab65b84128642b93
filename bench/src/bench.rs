//! What every work is given, and how the works are listed.

use std::path::PathBuf;

use crate::Result;
use crate::progress::Progress;
use crate::table::Summary;

/// One thing that is measured: a row of the list in `main.rs`.
pub struct Work {
    /// For `--only`.
    pub name: &'static str,
    /// What it measures, for the list in the help.
    pub about: &'static str,
    pub run: fn(&Bench, &mut Summary) -> Result<()>,
}

/// What a work needs to know of this run.
pub struct Bench {
    /// Always a release build.
    pub module: PathBuf,
    /// A first look: fewer rounds, and fewer cases where there are many.
    pub quick: bool,
    /// Where the servers of the test matrix are, each in a folder of its own.
    pub servers: Option<PathBuf>,
    pub progress: Progress,
}

impl Bench {
    /// How many rounds to do: in a full run, and for a first look.
    pub fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}
