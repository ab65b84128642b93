//! A majority lock on five servers: the DLOCK client, which is done once a majority has replied, and rslock, which waits
//! for all. The lower bound is a lock on one server, the slowest of the healthy ones.

mod nodes;

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::{Acquire, Owner, Release, redlock};
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};

use crate::results::DLOCK;
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::stats::{ms, stats_of};
use crate::results::table::{Figure, Summary};
use crate::workloads::Bench;
use crate::{Result, interrupt};
use nodes::{Fault, Network, Nodes};

const LEASE: Duration = Duration::from_secs(30);
/// Opens connections and loads scripts before the measurement.
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
    /// A lock on the slowest healthy server only.
    single: Sample,
}

/// Rounds, and turns per round.
struct Size {
    rounds: usize,
    turns: usize,
    /// With an unresponsive server, rslock waits for its client's timeout twice a turn.
    unresponsive_turns: usize,
}

struct Clients {
    dlock: redlock::Locks,
    rslock: LockManager,
    single: MultiplexedConnection,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let size = Size {
        rounds: bench.rounds(5, 1),
        turns: bench.rounds(50, 20),
        unresponsive_turns: bench.rounds(2, 1),
    };
    let mut bars = Vec::new();
    for network in Network::ALL {
        for fault in Fault::ALL {
            let rounds = run(bench, network, fault, &size, summary)?;
            if network == Network::Remote {
                bars.extend(pair_bars(fault, &rounds));
            }
        }
    }
    summary.plot(Plot {
        file: "redlock",
        title: "A majority lock on five servers, acquire and release".into(),
        about: format!("uncontended, servers {}, medians", Network::Remote),
        shape: Shape::Bars { unit: "ms", bars },
    });
    summary.note(
        "single server: ACQUIRE and RELEASE on the slowest healthy server, two round trips. On this machine, servers, \
         clients and other programs share the cores: five requests are five times the work, and the network takes \
         no time",
    );
    Ok(())
}

fn run(
    bench: &Bench,
    network: Network,
    fault: Fault,
    size: &Size,
    summary: &mut Summary,
) -> Result<Vec<Round>> {
    let case = format!("{network}, {fault}");
    bench.progress.step("redlock", &case);
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rounds = rounds(&runtime, network, fault, size)?;

    let acquire: fn(&Sample) -> f64 = |sample| sample.acquire;
    let release: fn(&Sample) -> f64 = |sample| sample.release;
    for (metric, of) in [("acquire", acquire), ("release", release)] {
        let figure = |value| Figure::new(metric, value).ms().case(&case);
        summary.add(figure(stats_of(&rounds, |round| of(&round.dlock))));
        let rslock = figure(stats_of(&rounds, |round| of(&round.rslock))).of("rslock");
        summary.add(rslock.ratio(stats_of(&rounds, |round| of(&round.dlock) / of(&round.rslock))));
        let single = figure(stats_of(&rounds, |round| of(&round.single))).of("single server");
        summary.add(single.ratio(stats_of(&rounds, |round| of(&round.dlock) / of(&round.single))));
    }
    let ratio = stats_of(&rounds, |round| round.dlock.total() / round.single.total());
    let ratio = Figure::new("pair / single server", ratio).case(&case);
    summary.add(match network {
        // On one machine no server is slower than the others, only busier.
        Network::Local => ratio,
        Network::Remote => ratio.at_most(1.3),
    });
    Ok(rounds)
}

fn pair_bars(fault: Fault, rounds: &[Round]) -> [Bar; 2] {
    let bar = |name: &str, sample: fn(&Round) -> &Sample| Bar {
        name: format!("{name}, {fault}"),
        value: stats_of(rounds, |round| sample(round).total()),
    };
    [
        bar(DLOCK, |round| &round.dlock),
        bar("rslock", |round| &round.rslock),
    ]
}

fn rounds(runtime: &Runtime, network: Network, fault: Fault, size: &Size) -> Result<Vec<Round>> {
    let mut nodes = Nodes::start(network, fault)?;
    let mut clients = runtime.block_on(Clients::connect(&nodes))?;
    runtime.block_on(round(&mut clients, "warm", WARM_UP_TURNS))?;
    nodes.inject_fault();
    let turns = match fault {
        Fault::Unresponsive => size.unresponsive_turns,
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
            single: slowest.get_multiplexed_async_connection().await?,
        })
    }
}

/// Alternating, so that noise affects all of them.
async fn round(clients: &mut Clients, name: &str, turns: usize) -> Result<Round> {
    let (mut dlock, mut rslock, mut single) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        interrupt::check()?;
        let key = |client: &str| format!("{client}:{name}:{turn}");
        single.push(single_turn(&mut clients.single, &key("single")).await?);
        dlock.push(dlock_turn(&clients.dlock, &key("dlock")).await?);
        rslock.push(rslock_turn(&clients.rslock, &key("rslock")).await?);
    }
    Ok(Round {
        dlock: Sample::median(&dlock),
        rslock: Sample::median(&rslock),
        single: Sample::median(&single),
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

async fn single_turn(connection: &mut MultiplexedConnection, key: &str) -> Result<Sample> {
    let owner = Owner::unique();
    let start = Instant::now();
    let grant = Acquire::new(key, &owner, LEASE).query_async(connection).await?;
    let acquire = ms(start.elapsed());
    let fence = grant.ok_or("a free lock was not granted")?.fence;
    let start = Instant::now();
    Release::new(key, &owner)
        .fence(fence)
        .query_async(connection)
        .await?;
    Ok(Sample {
        acquire,
        release: ms(start.elapsed()),
    })
}

impl Sample {
    fn median(samples: &[Self]) -> Self {
        Self {
            acquire: stats_of(samples, |sample| sample.acquire).median,
            release: stats_of(samples, |sample| sample.release).median,
        }
    }

    fn total(&self) -> f64 {
        self.acquire + self.release
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{bench, rows};

    #[test]
    fn majority_lock_with_one_faulty_server_is_acquired() -> Result<()> {
        let size = Size {
            rounds: 1,
            turns: 2,
            unresponsive_turns: 1,
        };
        let mut summary = Summary::default();
        for fault in Fault::ALL {
            run(&bench(), Network::Remote, fault, &size, &mut summary)?;
        }
        let acquire = |case| {
            let rows = rows(&summary, case, "acquire");
            rows.iter().map(|row| row.median).collect::<Vec<_>>()
        };
        // Waiting for the unresponsive server takes a timeout of half a second.
        let unresponsive = acquire("1.2 to 2 ms away, one unresponsive");
        assert!(unresponsive[0] < unresponsive[1], "{unresponsive:?}");
        assert_eq!(acquire("1.2 to 2 ms away, all healthy").len(), 3);
        Ok(())
    }
}
