//! Acquiring and releasing an uncontended lock: the client, the same two commands on a connection of redis-rs, and
//! rslock. They take turns every few milliseconds, so that noise affects all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis_dlock_client::Locks;
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::error::Result;
use crate::machine::cpu_seconds;
use crate::results::{DLOCK, Results};
use crate::scale::{Scale, passes};
use crate::server::Server;

const TWO_COMMANDS: &str = "two commands";
const RSLOCK: &str = "rslock 0.10";
const NAMES: [&str; 3] = [DLOCK, TWO_COMMANDS, RSLOCK];
/// Of an application, with their worker threads.
const RUNTIMES: [(usize, &str); 2] = [(1, "single-threaded"), (2, "multi-threaded")];
const LEASE: Duration = Duration::from_secs(30);
/// Of all tasks, before the next implementation runs.
const PAIRS: usize = 256;
/// One task shows latency, many show throughput.
const TASKS: [usize; 3] = [1, 16, 64];

struct Clients {
    commands: MultiplexedConnection,
    locks: Locks,
    rslock: Arc<LockManager>,
}

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    let server = Server::start()?;
    for (threads, name) in RUNTIMES {
        let runtime = runtime(threads)?;
        let clients = Clients::connect(&runtime, &server.url())?;
        for round in 0..scale.rounds(3) {
            for tasks in TASKS {
                let mut spent = [(0.0, 0.0, 0); NAMES.len()];
                for index in passes(scale.window() * 4, NAMES.len()) {
                    let (start, cpu) = (Instant::now(), cpu_seconds());
                    runtime.block_on(clients.run(index, tasks))?;
                    let (seconds, cpu_spent, pairs) = &mut spent[index];
                    *seconds += start.elapsed().as_secs_f64();
                    *cpu_spent += cpu_seconds() - cpu;
                    *pairs += PAIRS / tasks * tasks;
                }
                for (implementation, (seconds, cpu, pairs)) in NAMES.into_iter().zip(spent) {
                    let mut row = results.round(name, implementation, round).clients(tasks);
                    row.add("locks", "/s", pairs as f64 / seconds).add(
                        "client CPU",
                        "us",
                        cpu * 1e6 / pairs as f64,
                    );
                }
            }
        }
    }
    Ok(())
}

fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads).enable_all().build()?)
}

impl Clients {
    fn connect(runtime: &Runtime, url: &str) -> Result<Self> {
        let info: redis::ConnectionInfo = url.parse()?;
        // Like the DLOCK client.
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(settings))?;
        let clients = Self {
            commands: runtime.block_on(client.get_multiplexed_async_connection())?,
            locks: Locks::open(url)?,
            rslock: Arc::new(LockManager::from_clients(vec![client])),
        };
        (0..NAMES.len()).try_for_each(|index| runtime.block_on(clients.run(index, 1)))?;
        Ok(clients)
    }

    /// Tasks that acquire and release a lock each, in the order of `NAMES`.
    async fn run(&self, index: usize, tasks: usize) -> Result<()> {
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (pairs, key) = (PAIRS / tasks, format!("lock{task}"));
            match index {
                0 => running.spawn(guards(self.locks.lock(key).lease(LEASE), pairs)),
                1 => running.spawn(commands(self.commands.clone(), key, pairs)),
                _ => running.spawn(rslocks(Arc::clone(&self.rslock), format!("rslock{task}"), pairs)),
            };
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn guards(lock: redis_dlock_client::Lock, pairs: usize) -> Result<()> {
    for _ in 0..pairs {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

async fn rslocks(manager: Arc<LockManager>, key: String, pairs: usize) -> Result<()> {
    for _ in 0..pairs {
        let lock = manager.lock(key.as_str(), LEASE).await?;
        manager.unlock(&lock).await;
    }
    Ok(())
}

/// Names as long as those that the client generates, but free of charge.
async fn commands(mut connection: MultiplexedConnection, key: String, pairs: usize) -> Result<()> {
    const OWNER: &str = "some-host:12345:0123456789abcdef0123456789abcdef";
    for pair in 0..pairs {
        let id = format!("{pair:032}");
        let mut acquire = redis::cmd("DLOCK.ACQUIRE");
        acquire.arg((&key, OWNER, 30_000, "REQID", &id));
        let (fence, ..): (u64, u64, u64, u64) = acquire.query_async(&mut connection).await?;
        let mut release = redis::cmd("DLOCK.RELEASE");
        release.arg((&key, OWNER, "FENCE", fence, "REQID", &id));
        release.query_async::<()>(&mut connection).await?;
    }
    Ok(())
}
