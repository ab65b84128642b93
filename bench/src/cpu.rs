//! The server's CPU for taking a lock and giving it back.

use std::path::Path;

use crate::Result;
use crate::bench::Bench;
use crate::contender::{BATCH, Contender, Requests, short_names};
use crate::resp::Connection;
use crate::server::Server;
use crate::spread::Spread;
use crate::table::{Figure, Summary};

const KEYS: usize = 100_000;

/// Keys that stay in the steady keyspace, with a TTL: enough that the server neither shrinks its tables
/// when the locks have gone, nor grows them when the locks are there.
const OTHER_KEYS: usize = 40_000;

/// We come first, then what we are compared with.
const NAMES: [&str; 4] = ["dlock", "SET NX PX + DEL", "Lua by EVALSHA", "Lua by EVAL"];
const SET: usize = 1;
const EVALSHA: usize = 2;
const EVAL: usize = 3;

/// What one round showed of each.
type Round = [Sample; NAMES.len()];

/// The CPU of one contender in one round, in microseconds a lock.
#[derive(Default)]
struct Sample {
    /// All locks taken, then all given back, on a server that was empty.
    held: Held,
    /// The same in a keyspace that keeps its size.
    steady: Held,
    /// Each lock given back as soon as it was taken, so that one lives at a time.
    pair: f64,
}

#[derive(Default)]
struct Held {
    acquire: f64,
    release: f64,
}

impl Held {
    fn both(&self) -> f64 {
        self.acquire + self.release
    }
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let rounds = bench.rounds(7, 3);
    println!("\nServer CPU of ACQUIRE + RELEASE, uncontended, {KEYS} keys, pipelined by {BATCH}");
    println!("medians of {rounds} alternating rounds (lowest to highest), each on fresh servers");
    let rounds = (0..rounds)
        .map(|first| round(&bench.module, first))
        .collect::<Result<Vec<_>>>()?;

    println!("\n   held: all locks taken, then all given back, on a server that was empty");
    print(&rounds, |sample| sample.held.both());
    println!("     of it to take the lock");
    print_absolute(&rounds, |sample| sample.held.acquire);
    println!("\n   steady: as held, beside {OTHER_KEYS} other keys: the keyspace neither grows nor shrinks");
    print(&rounds, |sample| sample.steady.both());
    println!("\n   pair: each lock given back as soon as it was taken");
    print(&rounds, |sample| sample.pair);

    let held = |other| ratio(&rounds, other, |sample| sample.held.both());
    summary.add(Figure::new("CPU, dlock / SET NX PX + DEL", held(SET)).at_most(1.30));
    // The re-entrant pair as it is published sends its script each time.
    summary.add(Figure::new("CPU, dlock / Lua by EVAL", held(EVAL)).at_most(0.333));
    summary.add(Figure::new("CPU, dlock / Lua by EVALSHA", held(EVALSHA)));
    Ok(())
}

/// Measures all, beginning with another one each time.
///
/// On fresh servers, because where the memory of a process happens to lie makes up to a tenth of the
/// figures, for as long as the process lives.
fn round(module: &Path, first: usize) -> Result<Round> {
    let (empty_server, steady_server) = (Server::start(module)?, Server::start(module)?);
    let (empty, steady) = (&mut empty_server.connect()?, &mut steady_server.connect()?);
    let contenders = contenders(empty)?;
    self::contenders(steady)?;
    add_other_keys(steady)?;
    for contender in [&contenders[0], &contenders[SET]] {
        warm_up(contender, empty)?;
        warm_up(contender, steady)?;
    }
    let mut round = Round::default();
    for turn in 0..contenders.len() {
        let index = (first + turn) % contenders.len();
        round[index] = sample(&contenders[index], empty, steady)?;
    }
    Ok(round)
}

/// In the order of [`NAMES`]. Their scripts are loaded.
fn contenders(connection: &mut Connection) -> Result<[Contender; NAMES.len()]> {
    Ok([
        Contender::dlock(),
        Contender::set_and_del(),
        Contender::lua_by_evalsha(connection)?,
        Contender::lua_by_eval(),
    ])
}

fn add_other_keys(connection: &mut Connection) -> Result<()> {
    let set = Contender::set_and_del().acquire;
    Requests::of((KEYS..KEYS + OTHER_KEYS).map(|number| (&set, short_names(number)))).run(connection)
}

/// The first to come would pay for memory that the others then have.
fn warm_up(contender: &Contender, connection: &mut Connection) -> Result<()> {
    for command in [&contender.acquire, &contender.release] {
        Requests::of((0..KEYS).map(|number| (command, short_names(number)))).run(connection)?;
    }
    Ok(())
}

fn sample(contender: &Contender, empty: &mut Connection, steady: &mut Connection) -> Result<Sample> {
    let acquires = Requests::of((0..KEYS).map(|number| (&contender.acquire, short_names(number))));
    let releases = Requests::of((0..KEYS).map(|number| (&contender.release, short_names(number))));
    let commands = |number| [(&contender.acquire, number), (&contender.release, number)];
    let pairs = Requests::of(
        (0..KEYS)
            .flat_map(commands)
            .map(|(command, number)| (command, short_names(number))),
    );
    shrink(empty)?;
    let held = held(&acquires, &releases, empty)?;
    let steady = self::held(&acquires, &releases, steady)?;
    shrink(empty)?;
    let pair = cpu_of(&pairs, empty)?;
    Ok(Sample { held, steady, pair })
}

/// Makes the tables of the empty server small: each pays for their growth, not only who comes first.
fn shrink(connection: &mut Connection) -> Result<()> {
    connection.call(&["FLUSHALL", "SYNC"]).map(drop)
}

fn held(acquires: &Requests, releases: &Requests, connection: &mut Connection) -> Result<Held> {
    Ok(Held {
        acquire: cpu_of(acquires, connection)?,
        release: cpu_of(releases, connection)?,
    })
}

/// In microseconds a lock.
fn cpu_of(requests: &Requests, connection: &mut Connection) -> Result<f64> {
    let before = cpu_seconds(connection)?;
    requests.run(connection)?;
    let after = cpu_seconds(connection)?;
    Ok((after - before) * 1e6 / KEYS as f64)
}

/// Of the thread that carries commands out, where the server tells; else of the whole process.
fn cpu_seconds(connection: &mut Connection) -> Result<f64> {
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

/// Ratios first: absolute times tell of the machine.
fn print(rounds: &[Round], of: fn(&Sample) -> f64) {
    for (other, name) in NAMES.iter().enumerate().skip(SET) {
        println!(
            "     {:<26}{:.3}",
            format!("dlock / {name}"),
            ratio(rounds, other, of)
        );
    }
    print_absolute(rounds, of);
}

fn print_absolute(rounds: &[Round], of: fn(&Sample) -> f64) {
    for (index, name) in NAMES.iter().enumerate() {
        println!(
            "     {name:<26}{:.2} us",
            Spread::of(rounds.iter().map(|round| of(&round[index])))
        );
    }
}

/// Ours to the other's, within each round: what the machine did to a round, it did to both.
fn ratio(rounds: &[Round], other: usize, of: fn(&Sample) -> f64) -> Spread {
    Spread::of(rounds.iter().map(|round| of(&round[0]) / of(&round[other])))
}
