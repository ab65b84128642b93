//! What taking a lock that nobody else wants costs, and giving it back: the server's CPU, and the time of a
//! client that waits for each reply.

use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::contenders;
use crate::contenders::command::{BATCH, Command, Contender, Reentry, Requests, short_names};
use crate::resp::Connection;
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::spread::{percentile, spread, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

/// Keys that stay in the steady keyspace, with a TTL, for each lock: enough that the server neither shrinks its
/// tables when the locks have gone, nor grows them when the locks are there.
const OTHERS_A_LOCK: f64 = 0.4;

/// Of a client that waits for each reply.
const ROUND_TRIPS: usize = 2_000;

const FLOOR: &str = "SET NX PX + DEL";
const EVAL: &str = "re-entrant Lua by EVAL";
const EVALSHA: &str = "re-entrant Lua by EVALSHA";

/// What one round showed of each contender, in the order of their list.
type Round = Vec<(&'static str, Sample)>;

/// The CPU of one contender in one round, in microseconds a lock.
struct Sample {
    /// All locks taken, then all given back, on a server that was empty.
    held: Held,
    /// The same in a keyspace that keeps its size.
    steady: Held,
    /// Each lock given back as soon as it was taken, so that one lives at a time.
    pair: f64,
    /// Three acquisitions by one owner, then as many releases as it takes. None: it refuses.
    three: Option<f64>,
    /// As `pair`, each reply read before the next command is sent: CPU, and what the client waits for.
    alone: f64,
    alone_took: f64,
}

/// None: the contender cannot do it.
type Of = fn(&Sample) -> Option<f64>;

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
    let keys = bench.rounds(60_000, 20_000);
    let count = bench.rounds(5, 3);
    let rounds = (0..count)
        .map(|first| {
            bench
                .progress
                .step("cpu", &format!("round {} of {count}", first + 1));
            round(&bench.module, keys, first)
        })
        .collect::<Result<Vec<_>>>()?;

    let tables: [(&str, &str, Of); 7] = [
        (HELD, "CPU", |sample| Some(sample.held.both())),
        (HELD, "of it to acquire", |sample| Some(sample.held.acquire)),
        ("steady: as held, the keyspace keeps its size", "CPU", |sample| {
            Some(sample.steady.both())
        }),
        ("pair: each given back as soon as it was taken", "CPU", |sample| {
            Some(sample.pair)
        }),
        (
            "depth 3: taken three times by one owner, then given up",
            "CPU",
            |sample| sample.three,
        ),
        (
            "one at a time: each reply read before the next command",
            "CPU",
            |sample| Some(sample.alone),
        ),
        (
            "one at a time: each reply read before the next command",
            "time, p50",
            |sample| Some(sample.alone_took),
        ),
    ];
    for (case, metric, of) in tables {
        add_all(&rounds, case, metric, of, summary);
    }
    add_verdicts(&rounds, summary);
    summary.plot(picture(&rounds, keys));
    summary.note(format!(
        "{keys} locks, pipelined by {BATCH}, medians of {count} alternating rounds, each on fresh servers; in brackets: \
         dlock / that one"
    ));
    summary.note("the re-entrant Lua pair counts nothing: at depth 3 its first release gives the lock up");
    let server = Server::start(&bench.module)?;
    for missing in contenders::missing(&mut server.connect()?, true)? {
        summary.note(missing);
    }
    Ok(())
}

const HELD: &str = "held: all taken, then all given back, on a server that was empty";

fn add_all(rounds: &[Round], case: &str, metric: &str, of: Of, summary: &mut Summary) {
    let Some(first) = rounds.first() else { return };
    for (index, (name, sample)) in first.iter().enumerate() {
        if of(sample).is_none() {
            continue;
        }
        let value = |round: &Round, index: usize| of(&round[index].1).unwrap_or(f64::NAN);
        let figure = Figure::new(metric, spread(rounds, |round| value(round, index)));
        let figure = figure.of(*name).unit("us").case(case);
        summary.add(match index {
            0 => figure,
            // Within each round: what the machine did to a round, it did to both.
            _ => figure.ratio(spread(rounds, |round| value(round, 0) / value(round, index))),
        });
    }
}

fn add_verdicts(rounds: &[Round], summary: &mut Summary) {
    let held = |other: &str| {
        let cpu = |round: &Round, name: &str| {
            let found = round.iter().find(|(other, _)| *other == name);
            found.map_or(f64::NAN, |(_, sample)| sample.held.both())
        };
        spread(rounds, |round| round[0].1.held.both() / cpu(round, other))
    };
    let figure =
        |name: &str| Figure::new(format!("CPU, held, dlock / {name}"), held(name)).case("as a ratio");
    summary.add(figure(FLOOR).at_most(1.25));
    // The re-entrant pair as it is published sends its script each time.
    summary.add(figure(EVAL).at_most(0.30));
    summary.add(figure(EVALSHA));
}

fn picture(rounds: &[Round], keys: usize) -> Plot {
    let bar = |(index, (name, _)): (usize, &(&'static str, Sample))| Bar {
        name: (*name).into(),
        value: spread(rounds, |round| round[index].1.held.both()),
    };
    Plot {
        file: "cpu",
        title: "The server's CPU for taking a lock and giving it back".into(),
        about: format!(
            "uncontended, {keys} locks held at once, pipelined, medians of {} rounds",
            rounds.len()
        ),
        shape: Shape::Bars {
            unit: "us",
            bars: rounds
                .first()
                .into_iter()
                .flatten()
                .enumerate()
                .map(bar)
                .collect(),
        },
    }
}

/// Measures all, beginning with another one each time.
///
/// On fresh servers, because where the memory of a process happens to lie makes up to a tenth of the
/// figures, for as long as the process lives.
fn round(module: &Path, keys: usize, first: usize) -> Result<Round> {
    let (empty_server, steady_server) = (Server::start(module)?, Server::start(module)?);
    let (empty, steady) = (&mut empty_server.connect()?, &mut steady_server.connect()?);
    let contenders = contenders::by_commands(empty)?;
    contenders::by_commands(steady)?;
    add_other_keys(keys, steady)?;
    for (_, contender) in &contenders[..2] {
        warm_up(contender, keys, empty)?;
        warm_up(contender, keys, steady)?;
    }
    let mut round = Vec::new();
    for turn in 0..contenders.len() {
        let index = (first + turn) % contenders.len();
        let (name, contender) = &contenders[index];
        round.push((index, *name, sample(contender, keys, empty, steady)?));
    }
    round.sort_by_key(|(index, ..)| *index);
    Ok(round
        .into_iter()
        .map(|(_, name, sample)| (name, sample))
        .collect())
}

fn add_other_keys(keys: usize, connection: &mut Connection) -> Result<()> {
    let set = Contender::set_and_del().acquire;
    let others = (keys as f64 * OTHERS_A_LOCK) as usize;
    Requests::of((keys..keys + others).map(|number| (&set, short_names(number)))).run(connection)
}

/// The first to come would pay for memory that the others then have.
fn warm_up(contender: &Contender, keys: usize, connection: &mut Connection) -> Result<()> {
    for command in [&contender.acquire, &contender.release] {
        Requests::of((0..keys).map(|number| (command, short_names(number)))).run(connection)?;
    }
    Ok(())
}

fn sample(
    contender: &Contender,
    keys: usize,
    empty: &mut Connection,
    steady: &mut Connection,
) -> Result<Sample> {
    let acquire = [&contender.acquire];
    let release: Vec<_> = contender.all_release().collect();
    let pair = [&acquire[..], &release].concat();
    let (acquires, releases) = (requests(&acquire, keys), requests(&release, keys));
    shrink(empty)?;
    let held = held(&acquires, &releases, keys, empty)?;
    let steady = self::held(&acquires, &releases, keys, steady)?;
    shrink(empty)?;
    let three = match three(contender) {
        Some(commands) => {
            let commands: Vec<_> = commands.iter().collect();
            Some(cpu_of(keys / 4, empty, |empty| {
                requests(&commands, keys / 4).run(empty)
            })?)
        }
        None => None,
    };
    let pairs = requests(&pair, keys);
    let mut times = Vec::new();
    Ok(Sample {
        held,
        steady,
        pair: cpu_of(keys, empty, |empty| pairs.run(empty))?,
        three,
        alone: cpu_of(ROUND_TRIPS, empty, |empty| {
            one_at_a_time(&pair, empty, &mut times)
        })?,
        alone_took: median_of(times),
    })
}

/// For one name after the other, all of these.
fn requests(commands: &[&Command], keys: usize) -> Requests {
    let of_one = |number| {
        commands
            .iter()
            .map(move |command| (*command, short_names(number)))
    };
    Requests::of((0..keys).flat_map(of_one))
}

/// Three acquisitions and what gives them all back.
fn three(contender: &Contender) -> Option<Vec<Command>> {
    let releases = match contender.reentry {
        Reentry::None => return None,
        Reentry::Counted => 3,
        Reentry::Forgotten => 1,
    };
    let mut commands = vec![
        contender.acquire.loosely(),
        contender.acquire.loosely(),
        contender.acquire.loosely(),
    ];
    for _ in 0..releases {
        commands.extend(contender.all_release().map(Command::loosely));
    }
    Some(commands)
}

fn one_at_a_time(commands: &[&Command], connection: &mut Connection, times: &mut Vec<f64>) -> Result<()> {
    for number in 0..ROUND_TRIPS {
        let requests: Vec<_> = commands
            .iter()
            .map(|command| Requests::of(std::iter::once((*command, short_names(number)))))
            .collect();
        let start = Instant::now();
        for request in requests {
            request.run(connection)?;
        }
        times.push(us(start.elapsed()));
    }
    Ok(())
}

fn median_of(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    percentile(&times, 50.0)
}

/// Makes the tables of the empty server small: each pays for their growth, not only who comes first.
fn shrink(connection: &mut Connection) -> Result<()> {
    connection.call(&["FLUSHALL", "SYNC"]).map(drop)
}

fn held(acquires: &Requests, releases: &Requests, keys: usize, connection: &mut Connection) -> Result<Held> {
    Ok(Held {
        acquire: cpu_of(keys, connection, |connection| acquires.run(connection))?,
        release: cpu_of(keys, connection, |connection| releases.run(connection))?,
    })
}

/// In microseconds a lock.
fn cpu_of(
    locks: usize,
    connection: &mut Connection,
    run: impl FnOnce(&mut Connection) -> Result<()>,
) -> Result<f64> {
    let before = cpu_seconds(connection)?;
    run(connection)?;
    let after = cpu_seconds(connection)?;
    Ok((after - before) * 1e6 / locks as f64)
}

/// Of the thread that carries commands out, where the server tells; else of the whole process.
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
