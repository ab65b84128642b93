//! Redlock and redsync: locks on a majority, over redis-rs.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{Clients, clients, runtime};
use crate::error::Result;
use crate::implementations::async_lock::AsyncLock;
use crate::implementations::redsync::DELETE;

/// A server that has not replied by then has failed. redsync has none by default.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(500);

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
pub const REDSYNC: Policy = Policy {
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

pub fn open(urls: &[String], keys: &[String], policy: &'static Policy) -> Result<Clients> {
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
