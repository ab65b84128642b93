//! Redisson's `RLock`: a hash of owners and counts, scripts, and a channel that announces releases.
//! From github.com/redisson/redisson at 6686397 (4.7.1-SNAPSHOT): `org.redisson.RedissonLock`
//! (`tryLockInnerAsync`, `unlockInnerAsync`, `lock`), `RedissonBaseLock` (`unlockInnerAsync` deletes the unlock
//! latch after each release) and `pubsub.LockPubSub`.
//!
//! Each client subscribes separately, like a process on its own machine; in Redisson the threads of one process share a
//! subscription. Scripts are called with EVALSHA, Redisson's default.

use std::time::{Duration, Instant};

use super::counting::{CountingConnection, expect, owned};
use super::{Client, ClientConfig};
use crate::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, Reentry, is_one};
use crate::interrupt;
use crate::resp::{Connection, Reply};

const TRY_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) \
or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
redis.call('hincrby', KEYS[1], ARGV[2], 1); \
redis.call('pexpire', KEYS[1], ARGV[1]); \
return nil; \
end; \
return redis.call('pttl', KEYS[1]);";

const UNLOCK: &str = "local val = redis.call('get', KEYS[3]); \
if val ~= false then \
return tonumber(val);\
end; \
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then \
return nil;\
end; \
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
if (counter > 0) then \
redis.call('pexpire', KEYS[1], ARGV[2]); \
redis.call('set', KEYS[3], 0, 'px', ARGV[5]); \
return 0; \
else \
redis.call('del', KEYS[1]); \
redis.call(ARGV[4], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
return 1; \
end; ";

/// `LockPubSub.UNLOCK_MESSAGE`.
const UNLOCK_MESSAGE: &str = "0";
/// TTL of the key that remembers the outcome of a release. By default four attempts of 3 s, about 2 s apart.
pub const LATCH_MS: &str = "20000";

pub fn implementation(connection: &mut Connection) -> Result<Implementation> {
    let acquire = super::load_script(connection, TRY_LOCK)?;
    let release = super::load_script(connection, UNLOCK)?;
    Ok(pair(&acquire, &release))
}

/// Takes the SHA1 of its scripts.
pub fn pair(acquire: &str, release: &str) -> Implementation {
    let (channel, latch) = (channel(KEY), format!("{}{OWNER}", latch(KEY)));
    let release = [
        "EVALSHA",
        release,
        "3",
        KEY,
        &channel,
        &latch,
        UNLOCK_MESSAGE,
        LEASE_MS,
        OWNER,
        "publish",
        LATCH_MS,
    ];
    Implementation {
        acquire: Command::new(&["EVALSHA", acquire, "1", KEY, LEASE_MS, OWNER], |reply| {
            *reply == Reply::Null
        }),
        release: Command::new(&release, is_one),
        after_release: Some(Command::new(&["DEL", &latch], is_one)),
        reentry: Reentry::Counted,
    }
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// Prefix of the latch; a fresh id of 32 digits follows for each release.
pub fn latch(key: &str) -> String {
    format!("redisson_unlock_latch:{{{key}}}:")
}

/// `ServiceManager.generateId`.
fn request_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// `RedissonBaseLock.getLockName`: the process and the thread.
pub fn lock_name(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}:1")
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let (key, owner, lease_ms) = (config.key, lock_name(config.number), config.lease_ms.to_string());
    let (channel, latch) = (channel(key), latch(key));
    Waiter::open(config, &channel, [TRY_LOCK, UNLOCK], |[acquire, release]| Words {
        acquire: owned(&["EVALSHA", acquire, "1", key, &lease_ms, &owner]),
        release: owned(&[
            "EVALSHA",
            release,
            "3",
            key,
            &channel,
            &latch,
            UNLOCK_MESSAGE,
            &lease_ms,
            &owner,
            "publish",
            LATCH_MS,
        ]),
        latch: Some(latch.clone()),
        remaining: ttl,
        is_released: is_one,
    })
}

/// What a client sends, and what the replies mean.
pub struct Words {
    pub acquire: Vec<String>,
    /// With the latch in place of its full name.
    pub release: Vec<String>,
    /// Prefix of the latch that is deleted after each release.
    pub latch: Option<String>,
    /// How long an attempt that was not granted may have to wait.
    pub remaining: fn(&Reply) -> Result<Option<Duration>>,
    pub is_released: fn(&Reply) -> bool,
}

/// A client that is notified of releases.
pub struct Waiter {
    connection: CountingConnection,
    channel: Subscription,
    words: Words,
}

impl Waiter {
    /// `words` gets the SHA1 of the scripts.
    pub fn open(
        config: &ClientConfig,
        channel: &str,
        [acquire, release]: [&str; 2],
        words: impl FnOnce([&str; 2]) -> Words,
    ) -> Result<Box<dyn Client>> {
        let mut connection = CountingConnection::new(config.server.connect()?);
        let acquire = super::load_script(connection.uncounted(), acquire)?;
        let release = super::load_script(connection.uncounted(), release)?;
        Ok(Box::new(Self {
            connection,
            channel: Subscription::new(config.server.connect()?, channel.into()),
            words: words([&acquire, &release]),
        }))
    }
}

impl Client for Waiter {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let (connection, words) = (&mut self.connection, &self.words);
        wait_on(&mut self.channel, end, || {
            (words.remaining)(&connection.call(&words.acquire)?)
        })
    }

    fn release(&mut self) -> Result<()> {
        let Words { release, latch, .. } = &self.words;
        let full = latch.as_ref().map(|latch| latch.clone() + &request_id());
        let word = |word: &String| {
            full.clone()
                .filter(|_| Some(word) == latch.as_ref())
                .unwrap_or(word.clone())
        };
        let words: Vec<String> = release.iter().map(word).collect();
        let reply = self.connection.call(&words)?;
        expect((self.words.is_released)(&reply), &reply)?;
        full.map_or(Ok(()), |latch| self.connection.call(&["DEL", &latch]).map(drop))
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands + self.channel.commands())
    }
}

/// Reply of an attempt: `None` if granted, else the remaining lease of the holder.
pub fn ttl(reply: &Reply) -> Result<Option<Duration>> {
    match reply {
        Reply::Null => Ok(None),
        // No TTL: wait for a message without a timeout.
        Reply::Integer(ms) => Ok(Some(
            u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis),
        )),
        reply => Err(format!("unexpected reply: {reply:?}").into()),
    }
}

/// `RedissonLock.lock`: try, subscribe, then retry at once, after each message, and when the lease must have expired.
fn wait_on(
    channel: &mut Subscription,
    end: Instant,
    mut try_lock: impl FnMut() -> Result<Option<Duration>>,
) -> Result<bool> {
    if try_lock()?.is_none() {
        return Ok(true);
    }
    channel.subscribe()?;
    let granted = loop {
        interrupt::check()?;
        let Some(ttl) = try_lock()? else { break true };
        let lease_end = Instant::now()
            .checked_add(ttl)
            .map_or(end, |lease_end| lease_end.min(end));
        channel.message(lease_end)?;
        if Instant::now() >= end {
            break false;
        }
    };
    channel.unsubscribe()?;
    Ok(granted)
}

/// A connection subscribed to one channel.
struct Subscription {
    connection: CountingConnection,
    channel: String,
}

impl Subscription {
    fn new(connection: Connection, channel: String) -> Self {
        Self {
            connection: CountingConnection::new(connection),
            channel,
        }
    }

    fn commands(&self) -> u64 {
        self.connection.commands
    }

    /// Returns when the subscription is confirmed. Discards earlier messages.
    fn subscribe(&mut self) -> Result<()> {
        self.connection.send(&["SUBSCRIBE", &self.channel])?;
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
        self.connection.send(&["UNSUBSCRIBE", &self.channel])
    }
}

fn is_push(reply: &Reply, kind: &str) -> bool {
    matches!(reply, Reply::Array(parts) if parts.first() == Some(&Reply::Bulk(kind.into())))
}
