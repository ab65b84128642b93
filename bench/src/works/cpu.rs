//! What taking a lock that nobody else wants costs, and giving it back: the server's CPU, and the time of a
//! client that waits for each reply.

use std::ops::Range;
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

/// How much one contender does before it is the next one's turn: tens of milliseconds, so that what the caches have
/// to load again each time is little of it. Most noise of a machine lasts longer.
const LOCKS_A_TURN: usize = 20_000;

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

#[derive(Clone, Copy)]
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
        "{keys} locks, pipelined by {BATCH}, medians of {count} rounds; in each, all take turns, on fresh servers of \
         their own; in brackets: dlock / that one"
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
fn round(module: &Path, keys: usize, first: usize) -> Result<Round> {
    let mut contenders = contenders::by_commands(&mut Server::start(module)?.connect()?)?;
    let count = contenders.len();
    contenders.rotate_left(first % count);
    let (mut empty, mut steady) = (places(count, module)?, places(count, module)?);
    for place in &mut steady {
        add_other_keys(keys, &mut place.connection)?;
    }
    let locks = Locks::of(&contenders, keys);
    // A first time: memory that a server asks the system for is no cost of its locks.
    locks.held(&mut empty)?;
    locks.held(&mut steady)?;
    shrink(&mut empty)?;
    let held = locks.held(&mut empty)?;
    let steady = locks.held(&mut steady)?;
    shrink(&mut empty)?;
    let three = pipelined(&mut empty, &works(&contenders, keys / 4, three))?;
    let pair = pipelined(&mut empty, &works(&contenders, keys, pair))?;
    let (alone, alone_took) = one_at_a_time(&mut empty, &contenders)?;
    let mut round: Round = contenders
        .iter()
        .enumerate()
        .map(|(turn, (name, contender))| {
            let sample = Sample {
                held: held[turn],
                steady: steady[turn],
                pair: pair[turn],
                three: (contender.reentry != Reentry::None).then_some(three[turn]),
                alone: alone[turn],
                alone_took: alone_took[turn],
            };
            (*name, sample)
        })
        .collect();
    round.rotate_right(first % count);
    Ok(round)
}

/// A server that one contender has for itself. A fresh one each round, because where the memory of a process
/// happens to lie makes up to a tenth of the figures, for as long as the process lives.
struct Place {
    connection: Connection,
    _server: Server,
}

fn places(count: usize, module: &Path) -> Result<Vec<Place>> {
    let place = |_| {
        let server = Server::start(module)?;
        let mut connection = server.connect()?;
        // Loads the scripts.
        contenders::by_commands(&mut connection)?;
        Ok(Place {
            connection,
            _server: server,
        })
    };
    (0..count).map(place).collect()
}

fn add_other_keys(keys: usize, connection: &mut Connection) -> Result<()> {
    let set = Contender::set_and_del().acquire;
    let others = (keys as f64 * OTHERS_A_LOCK) as usize;
    requests(&[set], keys..keys + others).run(connection)
}

/// Makes the tables of empty servers small: their growth is a cost of the locks.
fn shrink(places: &mut [Place]) -> Result<()> {
    places
        .iter_mut()
        .try_for_each(|place| place.connection.call(&["FLUSHALL", "SYNC"]).map(drop))
}

/// What one contender does, in parts, made before anything is measured.
struct Work {
    locks: usize,
    parts: Vec<Requests>,
}

type Contenders = [(&'static str, Contender)];

/// The commands for each of so many names, by each contender.
fn works(contenders: &Contenders, locks: usize, commands: fn(&Contender) -> Vec<Command>) -> Vec<Work> {
    let work = |(_, contender): &(_, Contender)| {
        let commands = commands(contender);
        let names = (0..locks)
            .step_by(LOCKS_A_TURN)
            .map(|start| start..locks.min(start + LOCKS_A_TURN));
        let parts = names.map(|names| requests(&commands, names)).collect();
        Work { locks, parts }
    };
    contenders.iter().map(work).collect()
}

/// All do the first part of their work, one after the other, then all the next one: what the machine does to one in
/// some moment, it does to the others too. Many commands are sent before the first reply is read. Returns the CPU of
/// each, in microseconds a lock.
fn pipelined(places: &mut [Place], works: &[Work]) -> Result<Vec<f64>> {
    let before = cpu_of_all(places)?;
    let parts = works.iter().map(|work| work.parts.len()).max();
    for part in 0..parts.unwrap_or(0) {
        for (place, work) in places.iter_mut().zip(works) {
            work.parts[part].run(&mut place.connection)?;
        }
    }
    let after = cpu_of_all(places)?;
    let spent = before.iter().zip(after).zip(works);
    Ok(spent
        .map(|((before, after), work)| (after - before) * 1e6 / work.locks as f64)
        .collect())
}

fn cpu_of_all(places: &mut [Place]) -> Result<Vec<f64>> {
    places
        .iter_mut()
        .map(|place| cpu_seconds(&mut place.connection))
        .collect()
}

/// Locks that are taken first, all of them, and then given back.
struct Locks {
    acquire: Vec<Work>,
    release: Vec<Work>,
}

impl Locks {
    fn of(contenders: &Contenders, keys: usize) -> Self {
        Self {
            acquire: works(contenders, keys, acquire),
            release: works(contenders, keys, release),
        }
    }

    fn held(&self, places: &mut [Place]) -> Result<Vec<Held>> {
        let acquire = pipelined(places, &self.acquire)?;
        let release = pipelined(places, &self.release)?;
        let both = acquire.into_iter().zip(release);
        Ok(both.map(|(acquire, release)| Held { acquire, release }).collect())
    }
}

/// Each reply is read before the next command is sent. Returns the CPU, and how long a pair took at the median, both
/// in microseconds.
fn one_at_a_time(places: &mut [Place], contenders: &Contenders) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut took = vec![Vec::new(); places.len()];
    let before = cpu_of_all(places)?;
    for number in 0..ROUND_TRIPS {
        for (turn, (_, contender)) in contenders.iter().enumerate() {
            let commands = pair(contender).into_iter();
            let commands: Vec<_> = commands
                .map(|command| requests(&[command], number..number + 1))
                .collect();
            let start = Instant::now();
            for command in commands {
                command.run(&mut places[turn].connection)?;
            }
            took[turn].push(us(start.elapsed()));
        }
    }
    let after = cpu_of_all(places)?;
    let spent = before.iter().zip(after).map(|(before, after)| after - before);
    let cpu = spent.map(|seconds| seconds * 1e6 / ROUND_TRIPS as f64).collect();
    Ok((cpu, took.into_iter().map(median_of).collect()))
}

fn median_of(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    percentile(&times, 50.0)
}

fn acquire(contender: &Contender) -> Vec<Command> {
    vec![contender.acquire.clone()]
}

fn release(contender: &Contender) -> Vec<Command> {
    contender.all_release().cloned().collect()
}

fn pair(contender: &Contender) -> Vec<Command> {
    [acquire(contender), release(contender)].concat()
}

/// Three acquisitions and what gives them all back; nothing where the second one is refused.
fn three(contender: &Contender) -> Vec<Command> {
    let releases = match contender.reentry {
        Reentry::None => return Vec::new(),
        Reentry::Counted => 3,
        Reentry::Forgotten => 1,
    };
    let all = [vec![acquire(contender); 3], vec![release(contender); releases]].concat();
    all.concat().iter().map(Command::loosely).collect()
}

/// For one name after the other, all of these.
fn requests(commands: &[Command], names: Range<usize>) -> Requests {
    let of_one = |number| commands.iter().map(move |command| (command, short_names(number)));
    Requests::of(names.flat_map(of_one))
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
