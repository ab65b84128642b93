//! An uncontended pair with a replica: CPU of both, and bytes replicated.

use crate::error::Result;
use crate::implementations::command::Implementation;
use crate::implementations::plain_key::set_and_del;
use crate::resp::{Connection, Reply};
use crate::results::table::Summary;
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::cpu::cpu_seconds;
use crate::workloads::pairs::{Pairs, compare};

const WAIT_MS: &str = "15000";

/// Cost of a pair.
struct Sample {
    /// In microseconds.
    primary: f64,
    replica: f64,
    bytes: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    run(bench, bench.rounds(100_000, 50_000), bench.rounds(5, 3), summary)
}

fn run(bench: &Bench, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    bench.progress.step("replica", "initial sync");
    let primary_server = Server::start()?;
    let replica_server = primary_server.replica();
    let (primary, replica) = (&mut primary_server.connect()?, &mut replica_server.connect()?);
    for implementation in [Implementation::dlock(), set_and_del()] {
        Pairs::pipelined(&implementation, pairs).run(primary)?;
    }
    bench.progress.step("replica", "pairs");
    let both = compare(rounds, |implementation| {
        sample(implementation, pairs, primary, replica)
    })?;
    let case = "one replica, per pair";
    both.add(summary, case, "CPU, primary", "us", |sample| sample.primary);
    both.add(summary, case, "CPU, replica", "us", |sample| sample.replica);
    both.add(summary, case, "replicated", "bytes", |sample| sample.bytes);
    Ok(())
}

fn sample(
    implementation: &Implementation,
    pairs: usize,
    primary: &mut Connection,
    replica: &mut Connection,
) -> Result<Sample> {
    let requests = Pairs::pipelined(implementation, pairs);
    let (offset, cpu) = (offset(primary)?, cpu_seconds(replica)?);
    let cost = requests.cost(primary)?;
    if primary.call(&["WAIT", "1", WAIT_MS])? != Reply::Integer(1) {
        return Err("the replica does not keep up with the primary".into());
    }
    let per_pair = |sum: f64| sum / pairs as f64;
    Ok(Sample {
        primary: cost.cpu,
        replica: per_pair((cpu_seconds(replica)? - cpu) * 1e6),
        bytes: per_pair(self::offset(primary)? - offset),
    })
}

fn offset(primary: &mut Connection) -> Result<f64> {
    primary.info_number("replication", "master_repl_offset")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{bench, rows};

    #[test]
    fn replica_of_primary_receives_all_pairs() -> Result<()> {
        let mut summary = Summary::default();
        run(&bench(), 600, 1, &mut summary)?;
        let sent = rows(&summary, "one replica, per pair", "replicated");
        // Two commands with a key of eleven bytes each.
        assert!(
            sent.iter().all(|row| (40.0..400.0).contains(&row.median)),
            "{sent:?}"
        );
        assert_eq!(sent.len(), 2);
        Ok(())
    }
}
