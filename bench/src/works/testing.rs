//! What the tests of the works share: each runs against real servers, with very little to do.

use crate::results::progress::Progress;
use crate::results::table::{Row, Summary};
use crate::works::Bench;

/// With the module that cargo built beside the tests.
pub fn bench() -> Bench {
    Bench {
        module: dlock_testkit::module_path(),
        quick: true,
        servers: None,
        progress: Progress::new(1),
    }
}

/// One for each contender.
pub fn rows<'a>(summary: &'a Summary, case: &str, metric: &str) -> Vec<&'a Row> {
    let rows = summary.rows().iter();
    rows.filter(|row| row.case == case && row.metric == metric)
        .collect()
}
