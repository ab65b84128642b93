//! Runtimes of an application.

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;

/// Their worker threads.
pub const RUNTIMES: [(usize, &str); 2] = [(1, "single-threaded"), (2, "multi-threaded")];

pub fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads).enable_all().build()?)
}
