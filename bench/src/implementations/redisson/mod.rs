//! Redisson's `RLock`: a hash of owners and counts, scripts, and a channel that announces releases. Its read-write lock
//! and its semaphore wait in the same way.
//!
//! From github.com/redisson/redisson at 6686397 (4.7.1-SNAPSHOT): `org.redisson.RedissonLock` (`tryLockInnerAsync`,
//! `unlockInnerAsync`, `lock`), `RedissonBaseLock` (`unlockInnerAsync` deletes the unlock latch after each release),
//! `RedissonReadLock`, `RedissonWriteLock`, `RedissonSemaphore` (`tryAcquireAsync0`, `releaseAsync`, `acquire`) and
//! `pubsub.LockPubSub`.
//!
//! Each client subscribes separately, like a process on its own machine; in Redisson the threads of one process share a
//! subscription. Scripts are called with EVALSHA, Redisson's default.

use std::time::{Duration, Instant};

use super::client::{Client, ClientConfig, PERMITS};
use super::command::{Command, Implementation, KEY, LEASE_MS, OWNER, Reentry, is_one};
use super::session::Session;
use crate::error::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply};

const LOCK_CHANNEL: &str = "redisson_lock__channel:{{key}}";
const READ_WRITE_CHANNEL: &str = "redisson_rwlock:{{key}}";
const SEMAPHORE_CHANNEL: &str = "redisson_sc:{{key}}";
/// Remembers the outcome of a release. `ServiceManager.generateId` makes the id.
const LATCH: &str = "redisson_unlock_latch:{{key}}:{id}";
/// TTL of the latch. By default four attempts of 3 s, about 2 s apart.
const LATCH_MS: &str = "20000";
/// `LockPubSub`: wakes one waiter, or all.
const UNLOCK_MESSAGE: &str = "0";
const READ_UNLOCK_MESSAGE: &str = "1";

pub fn mutex(connection: &mut Connection) -> Result<Implementation> {
    let (try_lock, unlock) = (include_str!("try_lock.lua"), include_str!("unlock.lua"));
    let keys = [KEY, LOCK_CHANNEL, LATCH];
    let args = [UNLOCK_MESSAGE, LEASE_MS, OWNER, "publish", LATCH_MS];
    Ok(with_latch(
        Command::script(connection, try_lock, &[KEY], &[LEASE_MS, OWNER], is_null)?,
        Command::script(connection, unlock, &keys, &args, is_one)?,
    ))
}

fn reader(connection: &mut Connection) -> Result<Implementation> {
    let (try_read, unlock) = (include_str!("try_read.lua"), include_str!("unlock_read.lua"));
    // `getReadWriteTimeoutNamePrefix`.
    let timeouts = "{{key}}:{owner}:rwlock_timeout";
    let keys = [KEY, READ_WRITE_CHANNEL, timeouts, "{{key}}", LATCH];
    let args = [UNLOCK_MESSAGE, OWNER, "publish", LATCH_MS];
    let write_name = "{owner}:write";
    Ok(with_latch(
        Command::script(
            connection,
            try_read,
            &[KEY, timeouts],
            &[LEASE_MS, OWNER, write_name],
            is_null,
        )?,
        Command::script(connection, unlock, &keys, &args, |reply| {
            matches!(reply, Reply::Integer(0 | 1))
        })?,
    ))
}

fn writer(connection: &mut Connection) -> Result<Implementation> {
    let (try_write, unlock) = (include_str!("try_write.lua"), include_str!("unlock_write.lua"));
    let keys = [KEY, READ_WRITE_CHANNEL, LATCH];
    let args = [READ_UNLOCK_MESSAGE, LEASE_MS, OWNER, "publish", LATCH_MS];
    Ok(with_latch(
        Command::script(connection, try_write, &[KEY], &[LEASE_MS, OWNER], is_null)?,
        Command::script(connection, unlock, &keys, &args, is_one)?,
    ))
}

/// A counter without owners and leases, so it does less than the others here, and the permit of a client that dies is
/// lost.
fn semaphore(connection: &mut Connection) -> Result<Implementation> {
    let (acquire, release) = (include_str!("try_permit.lua"), include_str!("release_permit.lua"));
    Ok(Implementation::new(
        Command::script(connection, acquire, &[KEY], &["1"], is_one)?,
        Command::script(
            connection,
            release,
            &[KEY, SEMAPHORE_CHANNEL],
            &["1", "publish"],
            |_| true,
        )?,
    ))
}

fn with_latch(acquire: Command, release: Command) -> Implementation {
    Implementation {
        after_release: Some(Command::new(&["DEL", LATCH], is_one)),
        reentry: Reentry::Counted,
        ..Implementation::new(acquire, release)
    }
}

fn is_null(reply: &Reply) -> bool {
    *reply == Reply::Null
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    Waiter::open(config, "", mutex, LOCK_CHANNEL, ttl)
}

pub fn open_reader(config: &ClientConfig) -> Result<Box<dyn Client>> {
    Waiter::open(config, "", reader, READ_WRITE_CHANNEL, ttl)
}

pub fn open_writer(config: &ClientConfig) -> Result<Box<dyn Client>> {
    Waiter::open(config, ":write", writer, READ_WRITE_CHANNEL, ttl)
}

pub fn open_semaphore(config: &ClientConfig) -> Result<Box<dyn Client>> {
    // `trySetPermits`: the first client sets the number of permits.
    let permits = ["SET", config.key, &PERMITS.to_string(), "NX"];
    config.servers.server.connect()?.call(&permits)?;
    // There is no lease whose end to wait for.
    Waiter::open(config, "", semaphore, SEMAPHORE_CHANNEL, |_| Ok(Duration::MAX))
}

/// How long a lock that was not granted is still held: its TTL in milliseconds.
fn ttl(reply: &Reply) -> Result<Duration> {
    match reply {
        // No TTL: wait for a message without a timeout.
        Reply::Integer(ms) => Ok(u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis)),
        reply => Err(format!("unexpected reply: {reply:?}").into()),
    }
}

/// A client that is notified of releases.
struct Waiter {
    session: Session,
    channel: Subscription,
    remaining: fn(&Reply) -> Result<Duration>,
}

impl Waiter {
    fn open(
        config: &ClientConfig,
        owner_suffix: &str,
        implementation: fn(&mut Connection) -> Result<Implementation>,
        channel: &str,
        remaining: fn(&Reply) -> Result<Duration>,
    ) -> Result<Box<dyn Client>> {
        // `RedissonBaseLock.getLockName`: the process and the thread.
        let owner = format!("00000000-0000-4000-8000-{:012}:1{owner_suffix}", config.number);
        Ok(Box::new(Self {
            session: Session::open(config, owner, implementation)?,
            channel: Subscription {
                connection: config.servers.server.connect()?,
                channel: channel.replace(KEY, config.key),
                commands: 0,
            },
            remaining,
        }))
    }

    /// `None` if granted, else the remaining lease of the holder.
    fn try_lock(&mut self) -> Result<Option<Duration>> {
        self.session
            .acquire()?
            .map(|reply| (self.remaining)(&reply))
            .transpose()
    }
}

impl Client for Waiter {
    /// `RedissonLock.lock`: try, subscribe, then retry at once, after each message, and when the lease must have
    /// expired.
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        if self.try_lock()?.is_none() {
            return Ok(true);
        }
        self.channel.subscribe()?;
        let granted = loop {
            interrupt::check()?;
            let Some(ttl) = self.try_lock()? else { break true };
            let lease_end = Instant::now().checked_add(ttl);
            self.channel
                .message(lease_end.map_or(end, |lease_end| lease_end.min(end)))?;
            if Instant::now() >= end {
                break false;
            }
        };
        self.channel.unsubscribe()?;
        Ok(granted)
    }

    fn release(&mut self) -> Result<()> {
        self.session.release()
    }

    fn commands(&self) -> Option<u64> {
        Some(self.session.commands + self.channel.commands)
    }
}

/// A connection subscribed to one channel.
struct Subscription {
    connection: Connection,
    channel: String,
    commands: u64,
}

impl Subscription {
    /// Returns when the subscription is confirmed. Discards earlier messages.
    fn subscribe(&mut self) -> Result<()> {
        self.send("SUBSCRIBE")?;
        while !is_push(&self.connection.receive()?, "subscribe") {}
        Ok(())
    }

    /// Waits for one message, at most until `end`.
    fn message(&mut self, end: Instant) -> Result<()> {
        while let Some(push) = self.connection.receive_until(end)? {
            if is_push(&push, "message") {
                break;
            }
        }
        Ok(())
    }

    /// Does not wait for the reply: the caller already has its lock.
    fn unsubscribe(&mut self) -> Result<()> {
        self.send("UNSUBSCRIBE")
    }

    fn send(&mut self, command: &str) -> Result<()> {
        self.commands += 1;
        Ok(self.connection.send_words(&[command, &self.channel])?)
    }
}

fn is_push(reply: &Reply, kind: &str) -> bool {
    matches!(reply, Reply::Array(parts) if parts.first() == Some(&Reply::Bulk(kind.into())))
}
