//! What the Rust client adds to the commands that it sends, and how rslock does beside it.
//!
//! The floor are the same two commands, with the same arguments, by hand on one connection of redis-rs: what no
//! client on that library can go below. All meet the same server in turns of a few milliseconds, so that a busy
//! machine meets them all.

mod hand_over;
mod pairs;

use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::results::spread::Spread;
use crate::results::table::Summary;
use crate::server::Server;
use crate::works::Bench;

/// With how many threads an application may run.
const THREADS: [usize; 2] = [1, 2];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let server = Server::start(&bench.module)?;
    for threads in THREADS {
        let runtime = runtime(threads)?;
        let plural = if threads == 1 { "" } else { "s" };
        let where_to = format!("{threads} thread{plural}");
        pairs::measure(bench, &server, &runtime, &where_to, summary)?;
        hand_over::measure(bench, &server, &runtime, &where_to, summary)?;
    }
    summary
        .note("the threads of the client, the server's and those of this program share the machine's cores");
    Ok(())
}

fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads).enable_all().build()?)
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

fn spread<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> Spread {
    Spread::of(rounds.iter().map(of))
}
