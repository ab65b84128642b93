//! Acquiring and releasing an uncontended lock.
//!
//! *Two commands, other thread* are sent on a connection of redis-rs whose driver runs in a thread of its own, as that of
//! the client does: what it costs to wake one thread from another, before anything is done for a lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::Locks;
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};

use super::cpu_time::cpu_time;
use crate::error::Result;
use crate::interrupt;
use crate::results::DLOCK;
use crate::results::stats::{stats_of, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

const LEASE: Duration = Duration::from_secs(30);
/// Per implementation and round: tens of milliseconds.
const PAIRS: usize = 256;
/// One task shows latency, many show throughput.
const TASKS: [(usize, &str); 3] = [(1, "one task"), (16, "16 tasks"), (64, "64 tasks")];
/// Locks and unlocks a second, at least, of those with the two commands.
const OF_TWO_COMMANDS: f64 = 0.9;
/// Those of rslock, at least, and its client CPU, at most.
const OF_RSLOCK: (f64, f64) = (1.0, 1.25);

/// What a pair takes, in microseconds.
struct Sample {
    elapsed: f64,
    client_cpu: f64,
}

/// Each with an open connection.
struct Clients {
    commands: MultiplexedConnection,
    commands_in_thread: MultiplexedConnection,
    /// Drives that connection.
    _thread: Runtime,
    locks: Locks,
    rslock: Arc<LockManager>,
}

pub fn measure(
    bench: &Bench,
    server: &Server,
    runtime: &Runtime,
    threads: &str,
    summary: &mut Summary,
) -> Result<()> {
    let clients = Clients::connect(runtime, &server.url())?;
    for (tasks, name) in TASKS {
        bench.progress.step("client", &format!("{threads}, {name}"));
        let names = vec![DLOCK, "two commands", "rslock", "two commands, other thread"];
        let pairs = Comparison::in_turns(names, bench.rounds(101, 15), |_, index| {
            interrupt::check()?;
            let before = cpu_time();
            let elapsed = runtime.block_on(clients.us_per_pair(index, tasks))?;
            let client_cpu = us(cpu_time() - before) / PAIRS as f64;
            Ok(Sample { elapsed, client_cpu })
        })?;
        let case = format!("{threads}, {name}");
        pairs.add(summary, &case, "acquire + release", "us", |sample| sample.elapsed);
        let ratio = |index: usize| stats_of(&pairs.rounds, |round| round[index].elapsed / round[0].elapsed);
        let (throughput, client_cpu) = OF_RSLOCK;
        let figures = [
            Figure::new("pairs a second / two commands", ratio(1)).at_least(OF_TWO_COMMANDS),
            Figure::new("pairs a second / two commands, other thread", ratio(3)).at_least(OF_TWO_COMMANDS),
            Figure::new("pairs a second / rslock", ratio(2)).at_least(throughput),
            Figure::new("client CPU / rslock", pairs.ratio(2, |sample| sample.client_cpu))
                .at_most(client_cpu),
        ];
        figures
            .into_iter()
            .for_each(|figure| summary.add(figure.case(&case)));
    }
    Ok(())
}

impl Clients {
    fn connect(runtime: &Runtime, url: &str) -> Result<Self> {
        let info: redis::ConnectionInfo = url.parse()?;
        // Like the DLOCK client.
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(settings))?;
        let mut thread = Builder::new_multi_thread();
        let thread = thread.worker_threads(1).enable_all().build()?;
        let clients = Self {
            commands: runtime.block_on(client.get_multiplexed_async_connection())?,
            commands_in_thread: thread.block_on(client.get_multiplexed_async_connection())?,
            _thread: thread,
            locks: Locks::open(url)?,
            rslock: Arc::new(LockManager::from_clients(vec![client])),
        };
        for index in 0..4 {
            runtime.block_on(clients.us_per_pair(index, 1))?;
        }
        Ok(clients)
    }

    async fn us_per_pair(&self, index: usize, tasks: usize) -> Result<f64> {
        match index {
            0 => self.guards(tasks).await,
            1 => commands(&self.commands, tasks).await,
            2 => self.rslock(tasks).await,
            _ => commands(&self.commands_in_thread, tasks).await,
        }
    }

    async fn guards(&self, tasks: usize) -> Result<f64> {
        run_tasks(tasks, |task| {
            let lock = self.locks.lock(format!("lock{task}")).lease(LEASE);
            async move {
                for _ in 0..PAIRS / tasks {
                    let guard = lock.acquire().await.map_err(text)?;
                    guard.release().await.map_err(text)?;
                }
                Ok(())
            }
        })
        .await
    }

    async fn rslock(&self, tasks: usize) -> Result<f64> {
        run_tasks(tasks, |task| {
            let manager = Arc::clone(&self.rslock);
            async move {
                let key = format!("rslock{task}");
                for _ in 0..PAIRS / tasks {
                    let lock = manager.lock(key.as_str(), LEASE).await.map_err(text)?;
                    manager.unlock(&lock).await;
                }
                Ok(())
            }
        })
        .await
    }
}

async fn commands(connection: &MultiplexedConnection, tasks: usize) -> Result<f64> {
    run_tasks(tasks, |task| {
        let mut connection = connection.clone();
        async move {
            let key = format!("lock{task}");
            for pair in 0..PAIRS / tasks {
                raw_pair(&mut connection, &key, pair).await.map_err(text)?;
            }
            Ok(())
        }
    })
    .await
}

/// Names as long as those the client generates, but free of charge.
async fn raw_pair(connection: &mut MultiplexedConnection, key: &str, pair: usize) -> redis::RedisResult<()> {
    const OWNER: &str = "some-host:12345:0123456789abcdef0123456789abcdef";
    let id = format!("{pair:032}");
    let mut acquire = redis::cmd("DLOCK.ACQUIRE");
    acquire.arg((key, OWNER, 30_000, "REQID", &id));
    let (fence, ..): (u64, u64, u64, u64) = acquire.query_async(connection).await?;
    let mut release = redis::cmd("DLOCK.RELEASE");
    release.arg((key, OWNER, "FENCE", fence, "REQID", &id));
    release.query_async(connection).await
}

/// Runs tasks concurrently. Returns microseconds per pair.
async fn run_tasks<F>(tasks: usize, work: impl Fn(usize) -> F) -> Result<f64>
where
    F: Future<Output = std::result::Result<(), String>> + Send + 'static,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / PAIRS as f64)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Reply;
    use crate::workloads::client::runtime;

    #[test]
    fn client_round_releases_all_counted_pairs() {
        let server = Server::start().unwrap();
        let runtime = runtime(2).unwrap();
        let clients = Clients::connect(&runtime, &server.url()).unwrap();
        let before = server.calls("dlock.release").unwrap();
        for index in 0..4 {
            assert!(runtime.block_on(clients.us_per_pair(index, 4)).unwrap() > 0.0);
        }
        // All but those of rslock.
        let releases = server.calls("dlock.release").unwrap() - before;
        assert_eq!(releases, 3.0 * PAIRS as f64);
        let keys = server.connect().unwrap().call(&["DBSIZE"]).unwrap();
        assert_eq!(keys, Reply::Integer(0));
    }
}
