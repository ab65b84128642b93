//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValue;

use crate::workloads::{WORKLOADS, Workload};

/// What DLOCK costs, compared with other locks on the same machine.
#[derive(Parser)]
#[command(after_help = "\
environment:
  DLOCK_SERVER   server program, default redis-server
  DLOCK_MODULE   module, default target/release/libdlock.so
  DLOCK_ETCD     etcd program, default etcd (Debian: etcd-server); skipped if not installed")]
pub struct Options {
    /// Fewer rounds and cases, about four minutes
    #[arg(long)]
    pub quick: bool,
    /// Exit with 1 if a target is missed
    #[arg(long)]
    pub check: bool,
    /// Run this workload only; can be repeated
    #[arg(long, value_name = "WORKLOAD", value_parser = names())]
    only: Vec<String>,
    /// Servers downloaded by `tests/matrix/fetch-servers DIR`, for the workload `servers`
    #[arg(long, value_name = "DIR")]
    pub servers: Option<PathBuf>,
    /// Where to write results.csv and the plots, default target/bench
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run the clients of a process, for the workload `quorum`
    #[arg(long, hide = true)]
    pub quorum_process: bool,
}

fn names() -> Vec<PossibleValue> {
    let value = |workload: &Workload| PossibleValue::new(workload.name).help(workload.about);
    WORKLOADS.iter().map(value).collect()
}

impl Options {
    pub fn selects(&self, workload: &Workload) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(args: &[&str]) -> Option<Vec<&'static str>> {
        let options = Options::try_parse_from([&["dlock-bench"], args].concat()).ok()?;
        let selected = WORKLOADS.iter().filter(|workload| options.selects(workload));
        Some(selected.map(|workload| workload.name).collect())
    }

    #[test]
    fn only_option_selects_the_named_workloads() {
        assert_eq!(
            selected(&["--quick"]).map(|names| names.len()),
            Some(WORKLOADS.len())
        );
        assert_eq!(
            selected(&["--only", "queue", "--only", "cpu"]),
            Some(vec!["cpu", "queue"])
        );
        assert_eq!(selected(&["--only", "three"]), None);
    }
}
