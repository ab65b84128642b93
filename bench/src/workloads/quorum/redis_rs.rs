//! What servers, cores and redis-rs take for a lock on a majority: the requests of [`DLOCK`](crate::results::DLOCK) while
//! all servers are up, without the guarantees of its client.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult, Value};
use tokio::sync::Mutex;

use super::clients::{Clients, clients, runtime};
use super::majority::{REDLOCK, command, connect};
use crate::error::Result;
use crate::implementations::async_lock::AsyncLock;

/// Fence, holds, lease and wait.
type Grant = [u64; 4];

pub fn open(urls: &[String], keys: &[String]) -> Result<Clients> {
    let runtime = runtime()?;
    let shared = runtime.block_on(connect(urls))?;
    let turn = Arc::new(Mutex::new(()));
    let own = keys.iter().map(|_| runtime.block_on(connect(urls)));
    let mut own = own.collect::<Result<Vec<_>>>()?.into_iter();
    clients(keys, &runtime, |key| Queue {
        shared: shared.clone(),
        own: own.next().unwrap_or_default(),
        turn: Arc::clone(&turn),
        key: key.into(),
        owner: format!("{:024x}", fastrand::u64(..)),
        is_contended: false,
    })
}

/// One client of the lock.
struct Queue {
    /// To each server, shared by all clients of the process.
    shared: Vec<MultiplexedConnection>,
    /// To each server, for requests that wait.
    own: Vec<MultiplexedConnection>,
    /// Among the clients of the process, to pass the doorway.
    turn: Arc<Mutex<()>>,
    key: String,
    owner: String,
    /// Whether others have held the lock.
    is_contended: bool,
}

impl Queue {
    /// The first server, then the others at once. Whether they have granted the lock.
    async fn try_acquire(&self) -> Result<bool> {
        let (first, others) = self.shared.split_first().ok_or("there is no server")?;
        let request = (REDLOCK.acquire)(&self.key, &self.owner);
        let Some([fence, ..]) = query::<Option<Grant>>(first.clone(), request.clone()).await? else {
            return Ok(false);
        };
        let request = with(request, "MINFENCE", fence);
        let replies = query_all(others, self.shared.len() / 2, &request, || ()).await?;
        Ok(!replies.contains(&Value::Nil))
    }

    /// On all servers, in the order in which clients have passed the doorway.
    async fn wait(&self) -> Result<()> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let doorway = format!("{}:doorway", self.key);
        let enter = command(&["DLOCK.ACQUIRE", &doorway, &self.owner, "500", "BLOCK", "0"]);
        let first = self.own.first().ok_or("there is no server")?;
        let [fence, ..] = query::<Grant>(first.clone(), enter).await?;
        let request = with((REDLOCK.acquire)(&self.key, &self.owner), "BLOCK", 0);
        let request = with(request, "MINFENCE", fence);
        let leave = command(&["DLOCK.RELEASE", &doorway, &self.owner]);
        let leaving = self
            .shared
            .first()
            .map(|first| query::<u64>(first.clone(), leave));
        let leave = || {
            leaving.map(tokio::spawn);
            drop(turn);
        };
        query_all(&self.own, self.own.len() / 2 + 1, &request, leave).await?;
        Ok(())
    }
}

impl AsyncLock for Queue {
    async fn acquire(&mut self) -> Result<()> {
        if !self.is_contended {
            if self.try_acquire().await? {
                return Ok(());
            }
            self.is_contended = true;
            self.release().await?;
        }
        self.wait().await
    }

    async fn release(&mut self) -> Result<()> {
        let request = (REDLOCK.release)(&self.key, &self.owner);
        query_all(&self.shared, self.shared.len() / 2 + 1, &request, || ()).await?;
        Ok(())
    }
}

fn with(mut request: Cmd, option: &str, value: u64) -> Cmd {
    request.arg(option).arg(value);
    request
}

/// The first replies of servers that are asked at once. The others are read in the background.
async fn query_all(
    connections: &[MultiplexedConnection],
    needed: usize,
    request: &Cmd,
    on_sent: impl FnOnce(),
) -> RedisResult<Vec<Value>> {
    let asked = connections.iter().cloned();
    let asked = asked.map(|connection| query(connection, request.clone()));
    let mut replies: FuturesUnordered<_> = asked.collect();
    let mut values = Vec::new();
    // Polled once, all requests are handed to the runtime.
    values.extend(replies.next().now_or_never().flatten().transpose()?);
    on_sent();
    while values.len() < needed
        && let Some(value) = replies.next().await
    {
        values.push(value?);
    }
    tokio::spawn(replies.for_each(|_| ready(())));
    Ok(values)
}

async fn query<T: FromRedisValue>(mut connection: MultiplexedConnection, request: Cmd) -> RedisResult<T> {
    request.query_async(&mut connection).await
}
