//! A fenced write: GUARD beside the plain command, and beside a script that checks the holder of a plain lock.

use crate::error::Result;
use crate::implementations::command::{BATCH, load_script};
use crate::implementations::dlock::fence_of;
use crate::resp::{Connection, Reply, command};
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::cpu::cpu_seconds;

const SET: &str = "SET";
const GUARD: &str = "GUARD SET";
const EVALSHA: &str = "EVALSHA: GET the holder, SET";

/// Compares the token of a plain lock, then writes.
const CHECK_AND_SET: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("SET", KEYS[2], ARGV[2])
else
	return redis.error_reply("NOTHELD")
end"#;

const CASE: &str = "one write of 9 bytes, pipelined";

/// Writes per turn.
const WRITES: usize = 100_000;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let (count, batches) = (bench.rounds(9, 3), WRITES / BATCH / bench.rounds(1, 5));
    let server = Server::start()?;
    let mut connection = server.connect()?;
    let commands = commands(&mut connection)?;
    let rounds = (0..count).map(|round| {
        bench.progress.round("guard", round, count);
        let mut us = |words| us_per_write(&mut connection, words, batches);
        commands.iter().map(|(_, words)| us(words)).collect()
    });
    let rounds = rounds.collect::<Result<Vec<Vec<f64>>>>()?;
    for (index, (name, _)) in commands.iter().enumerate() {
        let figure = Figure::new("server CPU", stats_of(&rounds, |round| round[index]));
        summary.add(figure.of(*name).case(CASE).unit("us"));
    }
    let ratio = |to: usize| stats_of(&rounds, |round| round[1] / round[to]);
    let figure = |metric: &str, to: usize| Figure::new(metric, ratio(to)).of(GUARD).case(CASE);
    summary.add(figure("CPU relative to SET", 0).at_most(2.9));
    summary.add(figure("CPU relative to the script", 2).at_most(0.5));
    Ok(())
}

/// The same write in three ways. The holder is in place.
fn commands(connection: &mut Connection) -> Result<[(&'static str, String); 3]> {
    let grant = connection.call(&["DLOCK.ACQUIRE", "lock:000001", "owner-000001", "600000"])?;
    let fence = fence_of(&grant)?;
    connection.call(&["SET", "lock:000002", "owner-000001"])?;
    let script = load_script(connection, CHECK_AND_SET)?;
    let guard = format!("DLOCK.GUARD lock:000001 owner-000001 {fence} SET data:000001 value-001");
    let eval = format!("EVALSHA {script} 2 lock:000002 data:000001 owner-000001 value-001");
    Ok([
        (SET, "SET data:000001 value-001".into()),
        (GUARD, guard),
        (EVALSHA, eval),
    ])
}

/// CPU of the server per write, in microseconds.
fn us_per_write(connection: &mut Connection, words: &str, batches: usize) -> Result<f64> {
    let bytes = command(&words.split(' ').collect::<Vec<_>>()).repeat(BATCH);
    let before = cpu_seconds(connection)?;
    for _ in 0..batches {
        connection.send(&bytes)?;
        for _ in 0..BATCH {
            match connection.receive()? {
                Reply::Simple(ok) if ok == "OK" => {}
                other => return Err(format!("{words} replied {other:?}").into()),
            }
        }
    }
    let seconds = cpu_seconds(connection)? - before;
    Ok(seconds * 1e6 / (batches * BATCH) as f64)
}
