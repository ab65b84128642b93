//! What a lock on five servers costs beside commands to one server: the slowest of those that are well.
//!
//! The rest are the client crate, which is done when a majority has answered, and rslock, which waits for all.

mod nodes;

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::{Acquire, AsyncLockCommands, Owner, Release, redlock};
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};

use crate::results::plot::{Bar, Plot, Shape};
use crate::results::spread::{ms, spread};
use crate::results::table::{DLOCK, Figure, Summary};
use crate::works::Bench;
use crate::{Result, interrupt};
use nodes::{Distance, Nodes, Trouble};

const LEASE: Duration = Duration::from_secs(30);
/// Connections are made and scripts are loaded before anything is measured.
const WARM_UP_TURNS: usize = 3;

/// Medians of one round, in milliseconds.
#[derive(Clone, Copy)]
struct Sample {
    acquire: f64,
    release: f64,
}

struct Round {
    dlock: Sample,
    rslock: Sample,
    /// The two commands on the slowest server that is well, and on no other.
    alone: Sample,
}

/// How much is done for a case.
struct Size {
    rounds: usize,
    turns: usize,
    /// Where one server is silent: rslock waits for its client's time limit, twice a turn.
    silent_turns: usize,
}

struct Clients {
    dlock: redlock::Locks,
    rslock: LockManager,
    alone: MultiplexedConnection,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let size = Size {
        rounds: bench.rounds(5, 1),
        turns: bench.rounds(50, 20),
        silent_turns: bench.rounds(2, 1),
    };
    let mut bars = Vec::new();
    for distance in Distance::ALL {
        for trouble in Trouble::ALL {
            let rounds = run(bench, distance, trouble, &size, summary)?;
            if distance == Distance::Far {
                bars.extend(pair_bars(trouble, &rounds));
            }
        }
    }
    summary.plot(Plot {
        file: "redlock",
        title: "A lock on five servers, taken and given back".into(),
        about: format!("uncontended, servers {}, medians", Distance::Far),
        shape: Shape::Bars { unit: "ms", bars },
    });
    summary.note(
        "alone: ACQUIRE and RELEASE on the slowest of the servers that are well, two round trips. Near, the servers, \
         the clients and what else runs share the cores: five requests are five times the work, and no time is \
         spent on the way",
    );
    Ok(())
}

fn run(
    bench: &Bench,
    distance: Distance,
    trouble: Trouble,
    size: &Size,
    summary: &mut Summary,
) -> Result<Vec<Round>> {
    let case = format!("{distance}, {trouble}");
    bench.progress.step("redlock", &case);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rounds = rounds(bench, &runtime, distance, trouble, size)?;

    let acquire: fn(&Sample) -> f64 = |sample| sample.acquire;
    let release: fn(&Sample) -> f64 = |sample| sample.release;
    for (metric, of) in [("acquire", acquire), ("release", release)] {
        let figure = |value| Figure::new(metric, value).ms().case(&case);
        summary.add(figure(spread(&rounds, |round| of(&round.dlock))));
        let rslock = figure(spread(&rounds, |round| of(&round.rslock))).of("rslock");
        summary.add(rslock.ratio(spread(&rounds, |round| of(&round.dlock) / of(&round.rslock))));
        let alone = figure(spread(&rounds, |round| of(&round.alone))).of("alone");
        summary.add(alone.ratio(spread(&rounds, |round| of(&round.dlock) / of(&round.alone))));
    }
    let to_alone = spread(&rounds, |round| round.dlock.both() / round.alone.both());
    let to_alone = Figure::new("pair to alone", to_alone).case(&case);
    summary.add(match distance {
        // On one machine there is no slowest server, only a busy one.
        Distance::Near => to_alone,
        Distance::Far => to_alone.at_most(1.3),
    });
    Ok(rounds)
}

fn pair_bars(trouble: Trouble, rounds: &[Round]) -> [Bar; 2] {
    let bar = |name: &str, who: fn(&Round) -> &Sample| Bar {
        name: format!("{name}, {trouble}"),
        value: spread(rounds, |round| who(round).both()),
    };
    [
        bar(DLOCK, |round| &round.dlock),
        bar("rslock", |round| &round.rslock),
    ]
}

fn rounds(
    bench: &Bench,
    runtime: &Runtime,
    distance: Distance,
    trouble: Trouble,
    size: &Size,
) -> Result<Vec<Round>> {
    let mut nodes = Nodes::start(&bench.module, distance, trouble)?;
    let mut clients = runtime.block_on(Clients::connect(&nodes))?;
    runtime.block_on(round(&mut clients, "warm", WARM_UP_TURNS))?;
    nodes.strike();
    let turns = match trouble {
        Trouble::Silent => size.silent_turns,
        _ => size.turns,
    };
    (0..size.rounds)
        .map(|number| runtime.block_on(round(&mut clients, &number.to_string(), turns)))
        .collect()
}

impl Clients {
    async fn connect(nodes: &Nodes) -> Result<Self> {
        let urls = nodes.urls();
        let slowest = redis::Client::open(nodes.slowest_url())?;
        Ok(Self {
            dlock: redlock::Locks::open(urls.iter().map(String::as_str))?,
            rslock: LockManager::new(urls),
            alone: slowest.get_multiplexed_async_connection().await?,
        })
    }
}

/// In turns, so that all meet the same weather.
async fn round(clients: &mut Clients, name: &str, turns: usize) -> Result<Round> {
    let (mut dlock, mut rslock, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        interrupt::check()?;
        let key = |who: &str| format!("{who}:{name}:{turn}");
        alone.push(alone_turn(&mut clients.alone, &key("alone")).await?);
        dlock.push(dlock_turn(&clients.dlock, &key("dlock")).await?);
        rslock.push(rslock_turn(&clients.rslock, &key("rslock")).await?);
    }
    Ok(Round {
        dlock: Sample::median(&dlock),
        rslock: Sample::median(&rslock),
        alone: Sample::median(&alone),
    })
}

async fn dlock_turn(locks: &redlock::Locks, key: &str) -> Result<Sample> {
    let lock = locks.lock(key).lease(LEASE);
    let start = Instant::now();
    let guard = lock.acquire().await?;
    let acquire = ms(start.elapsed());
    let start = Instant::now();
    guard.release().await?;
    Ok(Sample {
        acquire,
        release: ms(start.elapsed()),
    })
}

async fn rslock_turn(manager: &LockManager, key: &str) -> Result<Sample> {
    let start = Instant::now();
    let lock = manager.lock(key, LEASE).await?;
    let acquire = ms(start.elapsed());
    let start = Instant::now();
    lock.release().await;
    Ok(Sample {
        acquire,
        release: ms(start.elapsed()),
    })
}

async fn alone_turn(connection: &mut MultiplexedConnection, key: &str) -> Result<Sample> {
    let owner = Owner::unique();
    let start = Instant::now();
    let grant = connection.dlock_acquire(Acquire::new(key, &owner, LEASE)).await?;
    let acquire = ms(start.elapsed());
    let fence = grant.ok_or("a free lock was not granted")?.fence;
    let start = Instant::now();
    connection
        .dlock_release(Release::new(key, &owner).fence(fence))
        .await?;
    Ok(Sample {
        acquire,
        release: ms(start.elapsed()),
    })
}

impl Sample {
    fn median(samples: &[Self]) -> Self {
        Self {
            acquire: spread(samples, |sample| sample.acquire).median,
            release: spread(samples, |sample| sample.release).median,
        }
    }

    fn both(&self) -> f64 {
        self.acquire + self.release
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::testing::{bench, rows};

    #[test]
    fn a_majority_is_had_whatever_is_wrong_with_one_server() -> Result<()> {
        let size = Size {
            rounds: 1,
            turns: 2,
            silent_turns: 1,
        };
        let mut summary = Summary::default();
        for trouble in Trouble::ALL {
            run(&bench(), Distance::Far, trouble, &size, &mut summary)?;
        }
        let acquire = |case| {
            let rows = rows(&summary, case, "acquire");
            rows.iter().map(|row| row.median).collect::<Vec<_>>()
        };
        // Who waits for the silent one waits for a time limit, half a second.
        let silent = acquire("1.2 to 2 ms away, one silent");
        assert!(silent[0] < silent[1], "{silent:?}");
        assert_eq!(acquire("1.2 to 2 ms away, all well").len(), 3);
        Ok(())
    }
}
