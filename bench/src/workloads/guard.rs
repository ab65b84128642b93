//! A fenced write: GUARD beside the plain command, and beside a script that checks the holder of a plain lock.

use crate::Result;
use crate::implementations;
use crate::implementations::command::{BATCH, LEASE_MS};
use crate::resp::{Connection, Reply, command};
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;
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
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for round in 0..count {
        bench
            .progress
            .step("guard", &format!("round {} of {count}", round + 1));
        let turns = commands
            .iter()
            .map(|(_, words)| us_per_write(&mut connection, words, batches));
        rounds.push(turns.collect::<Result<_>>()?);
    }
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
fn commands(connection: &mut Connection) -> Result<[(&'static str, Vec<String>); 3]> {
    let grant = connection.call(&["DLOCK.ACQUIRE", "lock:000001", "owner-000001", LEASE_MS])?;
    let Reply::Array(numbers) = &grant else {
        return Err(format!("the lock was not granted: {grant:?}").into());
    };
    let Some(Reply::Integer(fence)) = numbers.first() else {
        return Err(format!("a grant without a fence: {grant:?}").into());
    };
    connection.call(&["SET", "lock:000002", "owner-000001"])?;
    let script = implementations::load_script(connection, CHECK_AND_SET)?;
    let fence = fence.to_string();
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    Ok([
        (SET, owned(&["SET", "data:000001", "value-001"])),
        (
            GUARD,
            owned(&[
                "DLOCK.GUARD",
                "lock:000001",
                "owner-000001",
                &fence,
                "SET",
                "data:000001",
                "value-001",
            ]),
        ),
        (
            EVALSHA,
            owned(&[
                "EVALSHA",
                &script,
                "2",
                "lock:000002",
                "data:000001",
                "owner-000001",
                "value-001",
            ]),
        ),
    ])
}

/// CPU of the server per write, in microseconds.
fn us_per_write(connection: &mut Connection, words: &[String], batches: usize) -> Result<f64> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let bytes = command(&words).repeat(BATCH);
    let before = cpu_seconds(connection)?;
    for _ in 0..batches {
        connection.send(&bytes)?;
        for _ in 0..BATCH {
            match connection.receive()? {
                Reply::Simple(ok) if ok == "OK" => {}
                other => return Err(format!("{words:?} replied {other:?}").into()),
            }
        }
    }
    let seconds = cpu_seconds(connection)? - before;
    Ok(seconds * 1e6 / (batches * BATCH) as f64)
}
