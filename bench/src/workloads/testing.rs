//! Shared by the tests of workloads, which run scaled down against real servers.

use std::time::Duration;

use crate::results::progress::Progress;
use crate::results::table::{Figure, Summary};
use crate::steal::WaitBudget;
use crate::workloads::bench::Bench;

pub fn bench() -> Bench {
    Bench {
        quick: true,
        servers: None,
        progress: Progress::new(1),
        wait_budget: WaitBudget::new(Duration::ZERO),
    }
}

/// One per implementation.
pub fn rows<'a>(summary: &'a Summary, case: &str, metric: &str) -> Vec<&'a Figure> {
    let figures = summary.figures.iter();
    figures
        .filter(|figure| figure.case == case && figure.metric == metric)
        .collect()
}
