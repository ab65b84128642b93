//! Acquiring and releasing an uncontended lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::Locks;
use rslock::LockManager;
use tokio::runtime::Runtime;

use crate::Result;
use crate::interrupt;
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;

const LEASE: Duration = Duration::from_secs(30);
/// Per implementation and round: tens of milliseconds.
const PAIRS: usize = 256;
/// One task shows latency, many show throughput.
const TASKS: [(usize, &str); 2] = [(1, "one task"), (64, "64 tasks")];
/// Maximum overhead: 10 %.
const TARGET: f64 = 1.10;

/// Microseconds per pair.
struct Round {
    commands: f64,
    guard: f64,
    rslock: f64,
}

/// Each with an open connection.
struct Clients {
    commands: MultiplexedConnection,
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
    let clients = runtime.block_on(Clients::connect(&server.url()))?;
    for (tasks, name) in TASKS {
        bench.progress.step("client", &format!("{threads}, {name}"));
        let rounds = (0..bench.rounds(101, 15))
            .map(|turn| runtime.block_on(clients.round(turn, tasks)))
            .collect::<Result<Vec<_>>>()?;
        let case = format!("{threads}, {name}");
        let figure = |value| Figure::new("acquire + release", value).unit("us").case(&case);
        let commands = stats_of(&rounds, |round| round.guard / round.commands);
        let rslock = stats_of(&rounds, |round| round.guard / round.rslock);
        summary.add(figure(stats_of(&rounds, |round| round.guard)));
        summary.add(
            figure(stats_of(&rounds, |round| round.commands))
                .of("two commands")
                .ratio(commands),
        );
        summary.add(
            figure(stats_of(&rounds, |round| round.rslock))
                .of("rslock")
                .ratio(rslock),
        );
        summary.add(
            Figure::new("guard / two commands", commands)
                .case(&case)
                .at_most(TARGET),
        );
    }
    Ok(())
}

impl Clients {
    async fn connect(url: &str) -> Result<Self> {
        let info: redis::ConnectionInfo = url.parse()?;
        // Like the DLOCK client.
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(settings))?;
        let clients = Self {
            commands: client.get_multiplexed_async_connection().await?,
            locks: Locks::open(url)?,
            rslock: Arc::new(LockManager::from_clients(vec![client])),
        };
        clients.round(0, 1).await?;
        Ok(clients)
    }

    /// In a different order each time.
    async fn round(&self, turn: usize, tasks: usize) -> Result<Round> {
        interrupt::check()?;
        let (mut commands, mut guard, mut rslock) = (0.0, 0.0, 0.0);
        for implementation in 0..3 {
            match (turn + implementation) % 3 {
                0 => commands = self.commands(tasks).await?,
                1 => guard = self.guards(tasks).await?,
                _ => rslock = self.rslock(tasks).await?,
            }
        }
        Ok(Round {
            commands,
            guard,
            rslock,
        })
    }

    async fn commands(&self, tasks: usize) -> Result<f64> {
        run_tasks(tasks, |task| {
            let mut connection = self.commands.clone();
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

/// Names as long as those the client generates, but free of charge.
async fn raw_pair(connection: &mut MultiplexedConnection, key: &str, pair: usize) -> redis::RedisResult<()> {
    const OWNER: &str = "some-host:12345:0123456789abcdef0123456789abcdef";
    let id = format!("{pair:032}");
    let (fence, ..): (u64, u64, u64, u64) = redis::cmd("DLOCK.ACQUIRE")
        .arg(key)
        .arg(OWNER)
        .arg(30_000)
        .arg("REQID")
        .arg(&id)
        .query_async(connection)
        .await?;
    redis::cmd("DLOCK.RELEASE")
        .arg(key)
        .arg(OWNER)
        .arg("FENCE")
        .arg(fence)
        .arg("REQID")
        .arg(&id)
        .query_async(connection)
        .await
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
        let clients = runtime.block_on(Clients::connect(&server.url())).unwrap();
        let before = server.calls("dlock.release").unwrap();
        let round = runtime.block_on(clients.round(1, 4)).unwrap();
        assert!(round.commands > 0.0 && round.guard > 0.0 && round.rslock > 0.0);
        // Raw commands and guards.
        assert_eq!(
            server.calls("dlock.release").unwrap() - before,
            2.0 * PAIRS as f64
        );
        let keys = server.connect().unwrap().call(&["DBSIZE"]).unwrap();
        assert_eq!(keys, Reply::Integer(0));
    }
}
