//! Acquiring and releasing an uncontended lock: CPU of the server, and latency of a client that waits for each reply.

use std::ops::Range;
use std::time::Instant;

use crate::error::Result;
use crate::implementations;
use crate::implementations::command::{BATCH, Command, Implementation, Reentry, Requests, short_names};
use crate::implementations::plain_key::set_and_del;
use crate::resp::Connection;
use crate::results::plot::{Plot, Shape};
use crate::results::stats::{Stats, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

/// Permanent keys per lock in the steady keyspace: enough that the server neither shrinks its hash tables after the
/// releases nor grows them during the acquisitions.
const OTHER_KEYS_PER_LOCK: f64 = 0.4;

/// Of a client that waits for each reply.
const ROUND_TRIPS: usize = 2_000;

/// Locks per turn, before the next implementation runs. A turn takes tens of milliseconds: long enough that refilling
/// the caches hardly matters, shorter than most noise of a machine.
const LOCKS_PER_TURN: usize = 20_000;

/// CPU of one implementation in one round, in microseconds per lock.
struct Sample {
    /// All locks acquired, then all released, on a server that starts empty.
    held: Held,
    /// The same in a keyspace of constant size.
    steady: Held,
    /// Each lock released right after it is acquired.
    pair: f64,
    /// Three acquisitions by one owner, then the releases that free the lock. NaN: not re-entrant.
    depth_3: f64,
    /// Like `pair`, not pipelined: CPU, and latency.
    one_at_a_time: f64,
    latency: f64,
}

#[derive(Clone, Copy)]
struct Held {
    acquire: f64,
    release: f64,
}

impl Held {
    fn total(&self) -> f64 {
        self.acquire + self.release
    }
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let keys = bench.rounds(60_000, 20_000);
    let count = bench.rounds(5, 3);
    let server = Server::start()?;
    let connection = &mut server.connect()?;
    let names = implementations::all(connection)?;
    let names = names.into_iter().map(|(name, _)| name).collect();
    let rounds = (0..count).map(|first| {
        bench.progress.round("cpu", first, count);
        round(keys, first)
    });
    let rounds = Comparison {
        names,
        rounds: rounds.collect::<Result<_>>()?,
    };

    let mut add = |case, metric, of: fn(&Sample) -> f64| rounds.add(summary, case, metric, "us", of);
    let held = "held: all acquired, then all released, on a server that starts empty";
    add(held, "CPU", |sample| sample.held.total());
    add(held, "of which acquire", |sample| sample.held.acquire);
    let steady = "steady: like held, in a keyspace of constant size";
    add(steady, "CPU", |sample| sample.steady.total());
    let pair = "pair: each released right after it is acquired";
    add(pair, "CPU", |sample| sample.pair);
    let depth_3 = "depth 3: acquired three times by one owner, then released";
    add(depth_3, "CPU", |sample| sample.depth_3);
    let one_at_a_time = "one at a time: each reply read before the next command";
    add(one_at_a_time, "CPU", |sample| sample.one_at_a_time);
    add(one_at_a_time, "latency, p50", |sample| sample.latency);

    let held: fn(&Sample) -> f64 = |sample| sample.held.total();
    // The published re-entrant pair sends its script each time.
    for (what, of, name, target) in [
        ("held", held, "SET NX PX + DEL", Some(1.30)),
        ("pair", |sample| sample.pair, "SET NX PX + DEL", Some(1.40)),
        ("held", held, "re-entrant Lua by EVAL", Some(0.30)),
        ("held", held, "re-entrant Lua by EVALSHA", None),
    ] {
        let index = rounds.names.iter().position(|other| *other == name);
        let index = index.ok_or_else(|| format!("{name} was not measured"))?;
        let ratio = rounds.ratio(index, of);
        let figure = Figure::new(format!("CPU, {what}, dlock / {name}"), ratio).case("as a ratio");
        summary.add(match target {
            Some(limit) => figure.at_most(limit),
            None => figure,
        });
    }
    summary.plot(Plot {
        file: "cpu",
        title: "Server CPU to acquire and release a lock".into(),
        about: format!("uncontended, {keys} locks held at once, pipelined, medians of {count} rounds"),
        shape: Shape::Bars {
            unit: "us",
            bars: rounds.bars(|sample| sample.held.total()),
        },
    });
    summary.note(format!(
        "{keys} locks, pipelined by {BATCH}, medians of {count} rounds; in each, all take turns, each on a fresh server; \
         in parentheses: dlock / that implementation"
    ));
    summary.note("the re-entrant Lua pair does not count holds: at depth 3 its first release frees the lock");
    for note in implementations::skipped(connection, true)? {
        summary.note(note);
    }
    Ok(())
}

/// Measures all, starting with a different one each time. A sample per implementation, in list order.
fn round(keys: usize, first: usize) -> Result<Vec<Sample>> {
    let implementations = implementations::all(&mut Server::start()?.connect()?)?;
    let mut implementations: Vec<_> = implementations.into_iter().map(|(_, of)| of).collect();
    let count = implementations.len();
    implementations.rotate_left(first % count);
    let (mut empty, mut steady) = (start_instances(count)?, start_instances(count)?);
    for instance in &mut steady {
        add_other_keys(keys, &mut instance.connection)?;
    }
    let locks = Locks::of(&implementations, keys);
    // Warm-up: memory that the server requests from the system is not a cost of locks.
    locks.held(&mut empty)?;
    locks.held(&mut steady)?;
    shrink(&mut empty)?;
    let held = locks.held(&mut empty)?;
    let steady = locks.held(&mut steady)?;
    shrink(&mut empty)?;
    let depth_3 = pipelined(&mut empty, &batches(&implementations, keys / 4, depth_3))?;
    let pair = pipelined(&mut empty, &batches(&implementations, keys, pair))?;
    let (one_at_a_time, latency) = run_one_at_a_time(&mut empty, &implementations)?;
    let sample = |(turn, implementation): (usize, &Implementation)| Sample {
        held: held[turn],
        steady: steady[turn],
        pair: pair[turn],
        depth_3: if implementation.reentry == Reentry::None {
            f64::NAN
        } else {
            depth_3[turn]
        },
        one_at_a_time: one_at_a_time[turn],
        latency: latency[turn],
    };
    let mut round: Vec<_> = implementations.iter().enumerate().map(sample).collect();
    round.rotate_right(first % count);
    Ok(round)
}

/// A server for one implementation. A fresh one each round, because the memory layout of a process changes figures by
/// up to 10 % for its lifetime.
struct Instance {
    connection: Connection,
    _server: Server,
}

fn start_instances(count: usize) -> Result<Vec<Instance>> {
    let start = |_| {
        let server = Server::start()?;
        let mut connection = server.connect()?;
        // Loads the scripts.
        implementations::all(&mut connection)?;
        Ok(Instance {
            connection,
            _server: server,
        })
    };
    (0..count).map(start).collect()
}

fn add_other_keys(keys: usize, connection: &mut Connection) -> Result<()> {
    let set = set_and_del().acquire;
    let others = (keys as f64 * OTHER_KEYS_PER_LOCK) as usize;
    requests(&[set], keys..keys + others).run(connection)
}

/// Shrinks the hash tables: growing them is a cost of locks.
fn shrink(instances: &mut [Instance]) -> Result<()> {
    instances
        .iter_mut()
        .try_for_each(|instance| instance.connection.call(&["FLUSHALL", "SYNC"]).map(drop))
}

/// Requests of one implementation, one part per turn, encoded in advance.
struct Batches {
    locks: usize,
    parts: Vec<Requests>,
}

/// The same commands for each lock, by implementation.
fn batches(
    implementations: &[Implementation],
    locks: usize,
    commands: fn(&Implementation) -> Vec<Command>,
) -> Vec<Batches> {
    let batches = |implementation: &Implementation| {
        let commands = commands(implementation);
        let starts = (0..locks).step_by(LOCKS_PER_TURN);
        let part = |start| requests(&commands, start..locks.min(start + LOCKS_PER_TURN));
        Batches {
            locks,
            parts: starts.map(part).collect(),
        }
    };
    implementations.iter().map(batches).collect()
}

/// Implementations alternate, one part per turn, so that noise affects all of them. Returns the CPU of each, in
/// microseconds per lock.
fn pipelined(instances: &mut [Instance], batches: &[Batches]) -> Result<Vec<f64>> {
    let before = cpu_of_all(instances)?;
    let parts = batches.iter().map(|batches| batches.parts.len()).max();
    for part in 0..parts.unwrap_or(0) {
        for (instance, batches) in instances.iter_mut().zip(batches) {
            batches.parts[part].run(&mut instance.connection)?;
        }
    }
    let spent = before.iter().zip(cpu_of_all(instances)?).zip(batches);
    Ok(spent
        .map(|((before, after), batches)| (after - before) * 1e6 / batches.locks as f64)
        .collect())
}

fn cpu_of_all(instances: &mut [Instance]) -> Result<Vec<f64>> {
    let instances = instances.iter_mut();
    instances
        .map(|instance| cpu_seconds(&mut instance.connection))
        .collect()
}

/// All locks are acquired, then all released.
struct Locks {
    acquire: Vec<Batches>,
    release: Vec<Batches>,
}

impl Locks {
    fn of(implementations: &[Implementation], keys: usize) -> Self {
        Self {
            acquire: batches(implementations, keys, acquire),
            release: batches(implementations, keys, release),
        }
    }

    fn held(&self, instances: &mut [Instance]) -> Result<Vec<Held>> {
        let acquire = pipelined(instances, &self.acquire)?;
        let release = pipelined(instances, &self.release)?;
        let both = acquire.into_iter().zip(release);
        Ok(both.map(|(acquire, release)| Held { acquire, release }).collect())
    }
}

/// Reads each reply before it sends the next command. Returns CPU and median latency of a pair, in microseconds.
fn run_one_at_a_time(
    instances: &mut [Instance],
    implementations: &[Implementation],
) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut latencies = vec![Vec::new(); instances.len()];
    let before = cpu_of_all(instances)?;
    for number in 0..ROUND_TRIPS {
        for (turn, implementation) in implementations.iter().enumerate() {
            let one = |command| requests(&[command], number..number + 1);
            let commands: Vec<_> = pair(implementation).into_iter().map(one).collect();
            let start = Instant::now();
            for command in commands {
                command.run(&mut instances[turn].connection)?;
            }
            latencies[turn].push(us(start.elapsed()));
        }
    }
    let after = cpu_of_all(instances)?;
    let spent = before.iter().zip(after).map(|(before, after)| after - before);
    let cpu = spent.map(|seconds| seconds * 1e6 / ROUND_TRIPS as f64).collect();
    Ok((
        cpu,
        latencies
            .into_iter()
            .map(|times| Stats::of(times).median)
            .collect(),
    ))
}

fn acquire(implementation: &Implementation) -> Vec<Command> {
    vec![implementation.acquire.clone()]
}

fn release(implementation: &Implementation) -> Vec<Command> {
    implementation.release_commands().cloned().collect()
}

fn pair(implementation: &Implementation) -> Vec<Command> {
    [acquire(implementation), release(implementation)].concat()
}

/// Three acquisitions and the releases that free the lock; nothing if the second acquisition is rejected.
fn depth_3(implementation: &Implementation) -> Vec<Command> {
    let releases = match implementation.reentry {
        Reentry::None => return Vec::new(),
        Reentry::Counted => 3,
        Reentry::Uncounted => 1,
    };
    let (acquires, releases) = (
        vec![acquire(implementation); 3],
        vec![release(implementation); releases],
    );
    let all = [acquires, releases].concat().concat();
    all.iter().map(Command::accepting_any_reply).collect()
}

/// All commands for each name in turn.
fn requests(commands: &[Command], names: Range<usize>) -> Requests {
    let of_name = |number| commands.iter().map(move |command| (command, short_names(number)));
    Requests::of(names.flat_map(of_name))
}

/// CPU of the main thread if the server reports it, else of the process.
pub fn cpu_seconds(connection: &mut Connection) -> Result<f64> {
    let mut sum = 0.0;
    for field in ["used_cpu_user", "used_cpu_sys"] {
        let main_thread = connection.info("cpu", &format!("{field}_main_thread"))?;
        sum += match main_thread {
            Some(seconds) => seconds.parse()?,
            None => connection.info_number("cpu", field)?,
        };
    }
    Ok(sum)
}
