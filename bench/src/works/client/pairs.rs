//! Taking a lock that nobody else wants, and giving it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::Locks;
use rslock::LockManager;
use tokio::runtime::Runtime;

use super::{spread, url};
use crate::Result;
use crate::interrupt;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const LEASE: Duration = Duration::from_secs(30);
/// Of each contender in each round: some ten milliseconds.
const PAIRS: usize = 256;
/// One after the other, which shows latency, and many at once, which shows throughput.
const TASKS: [(usize, &str); 2] = [(1, "one task"), (64, "64 tasks")];
/// The client may add a tenth to the two commands.
const TARGET: f64 = 1.10;

/// Microseconds a pair.
struct Round {
    commands: f64,
    guard: f64,
    rslock: f64,
}

/// Each with its connection, which is there.
struct Contenders {
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
    let contenders = runtime.block_on(Contenders::connect(&url(server)))?;
    for (tasks, name) in TASKS {
        bench.progress.step("client", &format!("{threads}, {name}"));
        let rounds = (0..bench.rounds(101, 15))
            .map(|turn| runtime.block_on(contenders.round(turn, tasks)))
            .collect::<Result<Vec<_>>>()?;
        let case = format!("{threads}, {name}");
        let figure = |value| Figure::new("acquire + release", value).unit("us").case(&case);
        let commands = spread(&rounds, |round| round.guard / round.commands);
        let rslock = spread(&rounds, |round| round.guard / round.rslock);
        summary.add(figure(spread(&rounds, |round| round.guard)));
        summary.add(
            figure(spread(&rounds, |round| round.commands))
                .of("two commands")
                .ratio(commands),
        );
        summary.add(
            figure(spread(&rounds, |round| round.rslock))
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

impl Contenders {
    async fn connect(url: &str) -> Result<Self> {
        let info: redis::ConnectionInfo = url.parse()?;
        // As the client sets it: small messages leave at once.
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(settings))?;
        let contenders = Self {
            commands: client.get_multiplexed_async_connection().await?,
            locks: Locks::open(url)?,
            rslock: Arc::new(LockManager::from_clients(vec![client])),
        };
        contenders.round(0, 1).await?;
        Ok(contenders)
    }

    /// In another order each time.
    async fn round(&self, turn: usize, tasks: usize) -> Result<Round> {
        interrupt::check()?;
        let (mut commands, mut guard, mut rslock) = (0.0, 0.0, 0.0);
        for contender in 0..3 {
            match (turn + contender) % 3 {
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
        each(tasks, |task| {
            let mut connection = self.commands.clone();
            async move {
                let key = format!("lock{task}");
                for pair in 0..PAIRS / tasks {
                    by_hand(&mut connection, &key, pair).await.map_err(text)?;
                }
                Ok(())
            }
        })
        .await
    }

    async fn guards(&self, tasks: usize) -> Result<f64> {
        each(tasks, |task| {
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
        each(tasks, |task| {
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

/// As long as the names that the client makes, but made at no cost.
async fn by_hand(connection: &mut MultiplexedConnection, key: &str, pair: usize) -> redis::RedisResult<()> {
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

/// Runs so many tasks: microseconds for each of all their pairs.
async fn each<F>(tasks: usize, work: impl Fn(usize) -> F) -> Result<f64>
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
    use crate::works::client::runtime;
    use crate::works::testing::bench;

    #[test]
    fn each_contender_takes_and_gives_back_as_many_locks_as_are_counted() {
        let server = Server::start(&bench().module).unwrap();
        let runtime = runtime(2).unwrap();
        let contenders = runtime.block_on(Contenders::connect(&url(&server))).unwrap();
        let before = server.calls("dlock.release").unwrap();
        let round = runtime.block_on(contenders.round(1, 4)).unwrap();
        assert!(round.commands > 0.0 && round.guard > 0.0 && round.rslock > 0.0);
        // By hand and by guards.
        assert_eq!(
            server.calls("dlock.release").unwrap() - before,
            2.0 * PAIRS as f64
        );
        let keys = server.connect().unwrap().call(&["DBSIZE"]).unwrap();
        assert_eq!(keys, Reply::Integer(0));
    }
}
