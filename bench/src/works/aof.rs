//! What a pair costs when the server logs it: `appendfsync everysec` and `always`.

use crate::Result;
use crate::contenders::command::Contender;
use crate::resp::Connection;
use crate::results::table::Summary;
use crate::server::Server;
use crate::works::Bench;
use crate::works::pairs::{self, Cost, Pairs};

/// How much is done in a round.
struct Size {
    pipelined: usize,
    /// With `always` each command waits for the disk.
    one_by_one: usize,
}

struct Logged {
    pipelined: Cost,
    one_by_one: Cost,
    /// In the log, a pair.
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
        // A log that is rewritten meanwhile costs whoever has his turn.
        let settings = ["--appendonly", "yes", "--appendfsync", fsync];
        let settings = [&settings[..], &["--auto-aof-rewrite-percentage", "0"]].concat();
        let server = Server::start_with(&bench.module, &settings)?;
        let connection = &mut server.connect()?;
        for contender in [Contender::dlock(), Contender::set_and_del()] {
            Pairs::pipelined(&contender, size.pipelined).run(connection)?;
        }
        let rounds = pairs::rounds(rounds, |contender| logged(contender, size, connection))?;
        let mut add = |metric, unit, of| pairs::add(summary, &case, metric, unit, &rounds, of);
        add("CPU", "us", |logged: &Logged| logged.pipelined.cpu);
        add("served a second", "pairs", |logged| logged.pipelined.a_second());
        add("one by one", "us", |logged| logged.one_by_one.wall);
        add("log", "bytes", |logged| logged.bytes);
    }
    summary
        .note("of a pair; pipelined, but \"one by one\": each command waits for the reply to the one before");
    Ok(())
}

fn logged(contender: &Contender, size: &Size, connection: &mut Connection) -> Result<Logged> {
    let pairs = Pairs::pipelined(contender, size.pipelined);
    let before = log_bytes(connection)?;
    let pipelined = pairs.cost(connection)?;
    let bytes = log_bytes(connection)? - before;
    Ok(Logged {
        pipelined,
        one_by_one: Pairs::one_by_one(contender, size.one_by_one).cost(connection)?,
        bytes: bytes / size.pipelined as f64,
    })
}

/// What is written, and what is about to be.
fn log_bytes(connection: &mut Connection) -> Result<f64> {
    Ok(connection.info_number("persistence", "aof_current_size")?
        + connection.info_number("persistence", "aof_buffer_length")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::testing::{bench, rows};

    #[test]
    fn both_kinds_of_log_are_measured() -> Result<()> {
        let mut summary = Summary::default();
        let size = Size {
            pipelined: 600,
            one_by_one: 5,
        };
        run(&bench(), &size, 1, &mut summary)?;
        for fsync in ["everysec", "always"] {
            // Two commands with a name of eleven bytes each.
            let log = rows(&summary, &format!("appendfsync {fsync}"), "log");
            assert!(
                log.iter().all(|row| (40.0..400.0).contains(&row.median)),
                "{log:?}"
            );
            assert_eq!(log.len(), 2);
        }
        Ok(())
    }
}
