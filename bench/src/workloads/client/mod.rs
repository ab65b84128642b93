//! The Rust client: locks a second, tasks that wait, and guards that renew.

mod pairs;
mod renewals;
mod waiting;

use tokio::runtime::{Builder, Runtime};

use super::Scale;
use crate::error::Result;
use crate::results::Results;

/// Worker threads of the application.
const RUNTIMES: [(usize, &str); 2] = [(1, "single-threaded"), (2, "multi-threaded")];

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    waiting::measure(scale, results)?;
    renewals::measure(scale, results)?;
    pairs::measure(scale, results)
}

fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads).enable_all().build()?)
}
