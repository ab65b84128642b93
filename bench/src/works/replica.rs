//! What a pair costs a server that has a replica, and the replica.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::contenders::command::Contender;
use crate::resp::{Connection, Reply};
use crate::results::table::Summary;
use crate::server::Server;
use crate::works::Bench;
use crate::works::cpu::cpu_seconds;
use crate::works::pairs::{self, Pairs};

const LINK_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const WAIT_MS: &str = "15000";

/// What a pair cost.
struct Sent {
    /// In microseconds.
    primary: f64,
    replica: f64,
    bytes: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    run(bench, bench.rounds(100_000, 50_000), bench.rounds(5, 3), summary)
}

fn run(bench: &Bench, pairs: usize, rounds: usize, summary: &mut Summary) -> Result<()> {
    bench.progress.step("replica", "the link");
    let server = Server::start_with(&bench.module, &["--repl-diskless-sync-delay", "0"])?;
    let port = server.port().to_string();
    let follower = Server::start_with(&bench.module, &["--replicaof", "127.0.0.1", &port])?;
    let (primary, replica) = (&mut server.connect()?, &mut follower.connect()?);
    wait_for_link(primary)?;
    for contender in [Contender::dlock(), Contender::set_and_del()] {
        Pairs::pipelined(&contender, pairs).run(primary)?;
    }
    bench.progress.step("replica", "pairs");
    let rounds = pairs::rounds(rounds, |contender| sent(contender, pairs, primary, replica))?;
    let mut add = |metric, unit, of| pairs::add(summary, "one replica, a pair", metric, unit, &rounds, of);
    add("CPU, primary", "us", |sent: &Sent| sent.primary);
    add("CPU, replica", "us", |sent| sent.replica);
    add("sent", "bytes", |sent| sent.bytes);
    Ok(())
}

fn sent(
    contender: &Contender,
    pairs: usize,
    primary: &mut Connection,
    replica: &mut Connection,
) -> Result<Sent> {
    let requests = Pairs::pipelined(contender, pairs);
    let (offset, cpu) = (offset(primary)?, cpu_seconds(replica)?);
    let cost = requests.cost(primary)?;
    if primary.call(&["WAIT", "1", WAIT_MS])? != Reply::Integer(1) {
        return Err("the replica does not keep up".into());
    }
    let a_pair = |sum: f64| sum / pairs as f64;
    Ok(Sent {
        primary: cost.cpu,
        replica: a_pair((cpu_seconds(replica)? - cpu) * 1e6),
        bytes: a_pair(self::offset(primary)? - offset),
    })
}

fn offset(primary: &mut Connection) -> Result<f64> {
    primary.info_number("replication", "master_repl_offset")
}

/// Until the replica has all that was there before, and follows.
fn wait_for_link(primary: &mut Connection) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < LINK_TIMEOUT {
        let replica = primary.info("replication", "slave0")?;
        if replica.is_some_and(|replica| replica.contains("state=online")) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(format!("the replica was not there within {LINK_TIMEOUT:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::testing::{bench, rows};

    #[test]
    fn a_replica_gets_what_the_primary_counts() -> Result<()> {
        let mut summary = Summary::default();
        run(&bench(), 600, 1, &mut summary)?;
        let sent = rows(&summary, "one replica, a pair", "sent");
        // Two commands with a name of eleven bytes each.
        assert!(
            sent.iter().all(|row| (40.0..400.0).contains(&row.median)),
            "{sent:?}"
        );
        assert_eq!(sent.len(), 2);
        Ok(())
    }
}
