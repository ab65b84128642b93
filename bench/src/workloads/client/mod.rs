//! The Rust client: tasks that wait, guards that renew, and the overhead over its two commands, compared with rslock.
//!
//! The lower bound is the same two commands with the same arguments on one redis-rs connection. All run on the same
//! server, alternating every few milliseconds, so that noise affects all of them.

mod cpu_time;
mod hand_over;
mod pairs;
mod renewals;
mod waiting;

use tokio::runtime::{Builder, Runtime};

use crate::error::Result;
use crate::results::table::Summary;
use crate::server::Server;
use crate::workloads::bench::Bench;

/// Worker threads of the application.
const THREADS: [usize; 2] = [1, 2];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    // First, while the process is small: it measures what the process grows by.
    waiting::measure(bench, &runtime(1)?, summary)?;
    renewals::measure(bench, &runtime(1)?, summary)?;
    let server = Server::start()?;
    for threads in THREADS {
        let runtime = runtime(threads)?;
        let plural = if threads == 1 { "" } else { "s" };
        let threads = format!("{threads} thread{plural}");
        pairs::measure(bench, &server, &runtime, &threads, summary)?;
        hand_over::measure(bench, &server, &runtime, &threads, summary)?;
    }
    summary.note("client, server and benchmark share the cores of the machine");
    Ok(())
}

fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads).enable_all().build()?)
}
