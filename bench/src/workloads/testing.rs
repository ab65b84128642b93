//! Shared by the tests of workloads, which run scaled down against real servers.

use crate::results::progress::Progress;
use crate::results::table::{Row, Summary};
use crate::workloads::Bench;

pub fn bench() -> Bench {
    Bench {
        quick: true,
        servers: None,
        progress: Progress::new(1),
    }
}

/// One per implementation.
pub fn rows<'a>(summary: &'a Summary, case: &str, metric: &str) -> Vec<&'a Row> {
    let rows = summary.rows().iter();
    rows.filter(|row| row.case == case && row.metric == metric)
        .collect()
}
