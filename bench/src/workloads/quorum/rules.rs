//! The locks that are compared.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis_dlock_client as dlock;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::nodes::{Situation, median_url};
use super::{redis_rs, sockets};
use crate::Result;
use crate::implementations::Client;
use crate::implementations::async_lock::{AsyncLock, Blocking};
use crate::implementations::redsync::DELETE;
use crate::results::DLOCK;

pub const LEASE: Duration = Duration::from_secs(30);
/// A server that has not replied by then has failed. redsync has none by default.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(500);

pub type Clients = Vec<Box<dyn Client>>;

pub struct Rule {
    pub name: &'static str,
    /// In which it is measured.
    pub situations: &'static [Situation],
    /// Whether its clients wait for a lock that others hold. If not, it is measured with one client.
    pub waits: bool,
    /// Opens clients of the servers, by the keys of their locks.
    open: fn(&[String], &[String]) -> Result<Clients>,
}

/// Ours, what it is compared with, and the peers.
pub const RULES: [Rule; 8] = [
    Rule {
        name: DLOCK,
        situations: &Situation::ALL,
        waits: true,
        open: |urls, keys| {
            let settings = dlock::Settings::default().response_timeout(NODE_TIMEOUT);
            let locks = dlock::quorum::Locks::with(urls.iter().map(String::as_str), settings)?;
            clients(keys, &runtime()?, |key| Quorum {
                lock: locks.lock(key).lease(LEASE),
                guard: None,
            })
        },
    },
    Rule {
        name: "one server",
        situations: &[Situation::ALL_UP],
        waits: true,
        open: |urls, keys| {
            let locks = dlock::Locks::open(median_url(urls)?)?;
            clients(keys, &runtime()?, |key| One {
                lock: locks.lock(key).lease(LEASE),
                guard: None,
            })
        },
    },
    Rule {
        name: "redis-rs alone",
        situations: &[Situation::ALL_UP],
        waits: true,
        open: redis_rs::open,
    },
    Rule {
        name: "sockets alone",
        situations: &[Situation::ALL_UP],
        waits: false,
        open: sockets::open,
    },
    // What remains when one server is down.
    Rule {
        name: "sockets alone, four servers",
        situations: &[Situation::ALL_UP],
        waits: false,
        open: |urls, keys| sockets::open(urls.get(..4).unwrap_or(urls), keys),
    },
    Rule {
        name: "sockets alone, one server",
        situations: &[Situation::ALL_UP],
        waits: false,
        open: |urls, keys| sockets::open(&[median_url(urls)?.to_owned()], keys),
    },
    Rule {
        name: "Redlock",
        situations: ANY_FAULT,
        waits: true,
        open: |urls, keys| open_majority(urls, keys, &REDLOCK),
    },
    Rule {
        name: "redsync",
        situations: ANY_FAULT,
        waits: true,
        open: |urls, keys| open_majority(urls, keys, &REDSYNC),
    },
];

/// Peers ask all servers at once: the last one is as good as the first.
const ANY_FAULT: &[Situation] = &{
    let [all_up, stopped, killed, ..] = Situation::ALL;
    [all_up, stopped, killed]
};

/// Opens the clients of one process, which share its connections.
pub fn open(rule: &str, urls: &[String], keys: &[String]) -> Result<Clients> {
    let rule = RULES.iter().find(|known| known.name == rule);
    (rule.ok_or("no such rule")?.open)(urls, keys)
}

pub fn runtime() -> Result<Arc<Runtime>> {
    Ok(Arc::new(
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?,
    ))
}

pub fn clients<L: AsyncLock>(
    keys: &[String],
    runtime: &Arc<Runtime>,
    mut lock: impl FnMut(&str) -> L,
) -> Result<Clients> {
    let client = |key: &String| -> Box<dyn Client> { Box::new(Blocking::new(runtime, lock(key))) };
    Ok(keys.iter().map(client).collect())
}

/// A lock on a majority.
struct Quorum {
    lock: dlock::quorum::Lock,
    guard: Option<dlock::quorum::Guard>,
}

impl AsyncLock for Quorum {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self.guard.take().ok_or("not held")?.release().await {
            // On a busy machine. It goes on in the background.
            Err(dlock::Error::NoQuorum(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

/// A lock on the server in the middle.
struct One {
    lock: dlock::Lock,
    guard: Option<dlock::Guard>,
}

impl AsyncLock for One {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.guard.take().ok_or("not held")?.release().await?;
        Ok(())
    }
}

/// A lock without a queue: all servers are asked at once, and again after a random pause.
pub struct Policy {
    pub acquire: fn(key: &str, owner: &str) -> redis::Cmd,
    pub release: fn(key: &str, owner: &str) -> redis::Cmd,
    /// Whether all replies are awaited, or only as many as decide.
    awaits_all: bool,
    node_timeout: Option<Duration>,
    /// How long to wait after this many failed attempts.
    pause_ms: fn(attempt: u32) -> u64,
}

/// As this project's Rust client had it before its quorum locks.
pub const REDLOCK: Policy = Policy {
    acquire: |key, owner| command(&["DLOCK.ACQUIRE", key, owner, "30000", "REQID", "1"]),
    release: |key, owner| command(&["DLOCK.RELEASE", key, owner, "REQID", "1"]),
    awaits_all: false,
    node_timeout: Some(NODE_TIMEOUT),
    pause_ms: |attempt| {
        let longest = (10 << attempt.min(6)).min(500);
        fastrand::u64(longest / 2..=longest)
    },
};

/// redsync for Go: see `implementations/redsync.rs`.
const REDSYNC: Policy = Policy {
    acquire: |key, owner| command(&["SET", key, owner, "PX", "30000", "NX"]),
    release: |key, owner| command(&["EVAL", DELETE, "1", key, owner]),
    awaits_all: true,
    node_timeout: None,
    pause_ms: |_| fastrand::u64(50..250),
};

struct Majority {
    connections: Vec<MultiplexedConnection>,
    policy: &'static Policy,
    key: String,
    owner: String,
}

fn open_majority(urls: &[String], keys: &[String], policy: &'static Policy) -> Result<Clients> {
    let runtime = runtime()?;
    let connections = runtime.block_on(connect(urls))?;
    clients(keys, &runtime, |key| Majority {
        connections: connections.clone(),
        policy,
        key: key.into(),
        owner: format!("{:024x}", fastrand::u64(..)),
    })
}

pub async fn connect(urls: &[String]) -> Result<Vec<MultiplexedConnection>> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connections = Vec::new();
    for url in urls {
        let client = redis::Client::open(url.as_str())?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connections.push(connecting.await?);
    }
    Ok(connections)
}

impl Majority {
    /// Whether a majority agreed. Those that did not reply in time did not.
    async fn all_agree(&self, command: fn(&str, &str) -> redis::Cmd) -> bool {
        let mut replies = JoinSet::new();
        for mut connection in self.connections.iter().cloned() {
            let command = command(&self.key, &self.owner);
            let limit = self.policy.node_timeout.unwrap_or(Duration::MAX);
            replies.spawn(async move {
                let reply = timeout(limit, command.query_async::<redis::Value>(&mut connection));
                matches!(reply.await, Ok(Ok(reply)) if !matches!(reply, redis::Value::Nil | redis::Value::Int(-1)))
            });
        }
        let needed = self.connections.len() / 2 + 1;
        let (mut yes, mut no) = (0, 0);
        while let Some(reply) = replies.join_next().await {
            *if reply.unwrap_or(false) { &mut yes } else { &mut no } += 1;
            if !self.policy.awaits_all && yes.max(no) >= needed {
                replies.detach_all();
                break;
            }
        }
        yes >= needed
    }
}

impl AsyncLock for Majority {
    async fn acquire(&mut self) -> Result<()> {
        for attempt in 0.. {
            if self.all_agree(self.policy.acquire).await {
                break;
            }
            self.all_agree(self.policy.release).await;
            sleep(Duration::from_millis((self.policy.pause_ms)(attempt))).await;
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        if self.all_agree(self.policy.release).await {
            Ok(())
        } else {
            Err("no majority released the lock".into())
        }
    }
}

pub fn command(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command
}
