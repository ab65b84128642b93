//! An uncontended pair with an append-only file: `appendfsync everysec` and `always`.

use crate::error::Result;
use crate::implementations::command::Implementation;
use crate::implementations::plain_key::set_and_del;
use crate::resp::Connection;
use crate::results::table::Summary;
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::pairs::{Cost, Pairs, compare};

/// Pairs per round.
struct Size {
    pipelined: usize,
    /// Fewer: with `always` each command waits for an fsync.
    one_by_one: usize,
}

struct Sample {
    pipelined: Cost,
    one_by_one: Cost,
    /// In the append-only file, per pair.
    bytes: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let size = Size {
        pipelined: bench.rounds(100_000, 50_000),
        one_by_one: bench.rounds(500, 200),
    };
    run(bench, &size, bench.rounds(5, 3), summary)
}

fn run(bench: &Bench, size: &Size, rounds: usize, summary: &mut Summary) -> Result<()> {
    for fsync in ["everysec", "always"] {
        let case = format!("appendfsync {fsync}");
        bench.progress.step("aof", &case);
        // A rewrite would slow down whichever implementation is being measured.
        let server = Server::with(&format!(
            "appendonly yes\nappendfsync {fsync}\nauto-aof-rewrite-percentage 0"
        ))?;
        let connection = &mut server.connect()?;
        for implementation in [Implementation::dlock(), set_and_del()] {
            Pairs::pipelined(&implementation, size.pipelined).run(connection)?;
        }
        let both = compare(rounds, |implementation| sample(implementation, size, connection))?;
        let mut add = |metric, unit, of: fn(&Sample) -> f64| both.add(summary, &case, metric, unit, of);
        add("CPU", "us", |sample| sample.pipelined.cpu);
        add("throughput", "pairs/s", |sample| sample.pipelined.per_second());
        add("one by one", "us", |sample| sample.one_by_one.wall);
        add("log size", "bytes", |sample| sample.bytes);
    }
    summary
        .note("per pair; pipelined, except \"one by one\", where each command waits for the previous reply");
    Ok(())
}

fn sample(implementation: &Implementation, size: &Size, connection: &mut Connection) -> Result<Sample> {
    let pairs = Pairs::pipelined(implementation, size.pipelined);
    let before = log_bytes(connection)?;
    let pipelined = pairs.cost(connection)?;
    let bytes = log_bytes(connection)? - before;
    Ok(Sample {
        pipelined,
        one_by_one: Pairs::one_by_one(implementation, size.one_by_one).cost(connection)?,
        bytes: bytes / size.pipelined as f64,
    })
}

/// Written and buffered.
fn log_bytes(connection: &mut Connection) -> Result<f64> {
    Ok(connection.info_number("persistence", "aof_current_size")?
        + connection.info_number("persistence", "aof_buffer_length")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{bench, rows};

    #[test]
    fn aof_with_each_fsync_policy_is_measured() -> Result<()> {
        let mut summary = Summary::default();
        let size = Size {
            pipelined: 600,
            one_by_one: 5,
        };
        run(&bench(), &size, 1, &mut summary)?;
        for fsync in ["everysec", "always"] {
            // Two commands with a key of eleven bytes each.
            let log = rows(&summary, &format!("appendfsync {fsync}"), "log size");
            assert!(
                log.iter().all(|row| (40.0..400.0).contains(&row.median)),
                "{log:?}"
            );
            assert_eq!(log.len(), 2);
        }
        Ok(())
    }
}
