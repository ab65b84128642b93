use std::time::Duration;

use redis::{Cmd, ConnectionLike, FromRedisValue, Pipeline, ToSingleRedisArg};

use super::request::{info_of, owner_of};
use super::{Acquire, Extend, Grant, LockInfo, Release};
use crate::error::Error;
use crate::owner::Owner;

/// The five commands on a blocking connection of redis-rs, also one to a cluster.
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_client::{Acquire, LockCommands, Release};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let request = Acquire::new("orders:42", "alice", Duration::from_secs(30));
/// if let Some(grant) = connection.dlock_acquire(request)? {
///     println!("fence {}", grant.fence);
///     connection.dlock_release(Release::new("orders:42", "alice").fence(grant.fence))?;
/// }
/// # Ok(()) }
/// ```
pub trait LockCommands: ConnectionLike + Sized {
    /// Acquires a lock, or one more hold of it. `None`: not granted.
    fn dlock_acquire(&mut self, request: Acquire) -> Result<Option<Grant>, Error> {
        query(self, request)
    }

    /// Gives a hold back, and tells how many the owner still has.
    fn dlock_release(&mut self, request: Release) -> Result<u64, Error> {
        query(self, request)
    }

    /// Prolongs a lease, and tells what then remains.
    fn dlock_extend(&mut self, request: Extend) -> Result<Duration, Error> {
        query(self, request).map(Duration::from_millis)
    }

    /// The owner that has held the lock the longest. `None`: the lock is free.
    fn dlock_owner(&mut self, key: impl ToSingleRedisArg) -> Result<Option<Owner>, Error> {
        query(self, owner_of(key))
    }

    /// All about a lock. `None`: it is free, and nobody waits.
    fn dlock_info(&mut self, key: impl ToSingleRedisArg) -> Result<Option<LockInfo>, Error> {
        query(self, info_of(key))
    }
}

impl<C: ConnectionLike> LockCommands for C {}

fn query<T: FromRedisValue>(
    connection: &mut (impl ConnectionLike + Sized),
    command: impl Into<Cmd>,
) -> Result<T, Error> {
    command.into().query(connection).map_err(Error::from)
}

/// The five commands on an async connection of redis-rs, also one to a cluster.
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_client::{Acquire, AsyncLockCommands};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// let request = Acquire::new("orders:42", "alice", Duration::from_secs(30)).shared();
/// let grant = connection.dlock_acquire(request).await?;
/// # Ok(()) }
/// ```
#[cfg(feature = "tokio")]
pub trait AsyncLockCommands: redis::aio::ConnectionLike + Send + Sized {
    /// Acquires a lock, or one more hold of it. `None`: not granted.
    fn dlock_acquire(
        &mut self,
        request: Acquire,
    ) -> impl Future<Output = Result<Option<Grant>, Error>> + Send {
        query_async(self, request.into())
    }

    /// Gives a hold back, and tells how many the owner still has.
    fn dlock_release(&mut self, request: Release) -> impl Future<Output = Result<u64, Error>> + Send {
        query_async(self, request.into())
    }

    /// Prolongs a lease, and tells what then remains.
    fn dlock_extend(&mut self, request: Extend) -> impl Future<Output = Result<Duration, Error>> + Send {
        async { query_async(self, request.into()).await.map(Duration::from_millis) }
    }

    /// The owner that has held the lock the longest. `None`: the lock is free.
    fn dlock_owner(
        &mut self,
        key: impl ToSingleRedisArg,
    ) -> impl Future<Output = Result<Option<Owner>, Error>> + Send {
        query_async(self, owner_of(key))
    }

    /// All about a lock. `None`: it is free, and nobody waits.
    fn dlock_info(
        &mut self,
        key: impl ToSingleRedisArg,
    ) -> impl Future<Output = Result<Option<LockInfo>, Error>> + Send {
        query_async(self, info_of(key))
    }
}

#[cfg(feature = "tokio")]
impl<C: redis::aio::ConnectionLike + Send> AsyncLockCommands for C {}

#[cfg(feature = "tokio")]
async fn query_async<T: FromRedisValue>(
    connection: &mut (impl redis::aio::ConnectionLike + Send),
    command: Cmd,
) -> Result<T, Error> {
    command.query_async(connection).await.map_err(Error::from)
}

/// The five commands in a pipeline, also one for a cluster.
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_client::{Acquire, Grant, LockPipeline};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let lease = Duration::from_secs(30);
/// let (first, second): (Option<Grant>, Option<Grant>) = redis::pipe()
///     .dlock_acquire(Acquire::new("orders:42", "alice", lease))
///     .dlock_acquire(Acquire::new("orders:43", "alice", lease))
///     .query(&mut connection)?;
/// # Ok(()) }
/// ```
pub trait LockPipeline: Sized {
    /// Adds a command of any kind.
    #[doc(hidden)]
    fn add(&mut self, command: Cmd) -> &mut Self;

    /// Adds an ACQUIRE, answered by an `Option<`[`Grant`]`>`.
    fn dlock_acquire(&mut self, request: Acquire) -> &mut Self {
        self.add(request.into())
    }

    /// Adds a RELEASE, answered by the number of holds left, a `u64`.
    fn dlock_release(&mut self, request: Release) -> &mut Self {
        self.add(request.into())
    }

    /// Adds an EXTEND, answered by the remaining lease in ms, a `u64`.
    fn dlock_extend(&mut self, request: Extend) -> &mut Self {
        self.add(request.into())
    }

    /// Adds an OWNER, answered by an `Option<`[`Owner`]`>`.
    fn dlock_owner(&mut self, key: impl ToSingleRedisArg) -> &mut Self {
        self.add(owner_of(key))
    }

    /// Adds an INFO, answered by an `Option<`[`LockInfo`]`>`.
    fn dlock_info(&mut self, key: impl ToSingleRedisArg) -> &mut Self {
        self.add(info_of(key))
    }
}

impl LockPipeline for Pipeline {
    fn add(&mut self, command: Cmd) -> &mut Self {
        self.add_command(command)
    }
}

#[cfg(feature = "cluster")]
impl LockPipeline for redis::cluster::ClusterPipeline {
    fn add(&mut self, command: Cmd) -> &mut Self {
        self.add_command(command)
    }
}
