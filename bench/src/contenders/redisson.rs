//! Redisson's `RLock`: a hash of owners and counts, scripts, and a channel on which a release is announced.
//! From github.com/redisson/redisson at 6686397 (4.7.1-SNAPSHOT): `org.redisson.RedissonLock`
//! (`tryLockInnerAsync`, `unlockInnerAsync`, `lock`), `RedissonBaseLock` (`unlockInnerAsync` deletes the unlock
//! latch behind each release) and `pubsub.LockPubSub`.
//!
//! Each client is a process of its own here, as on machines of their own: threads of one process share a
//! subscription there. Scripts go by EVALSHA, Redisson's default.

use std::time::{Duration, Instant};

use super::wire::{Wire, expect};
use super::{Client, Wanted};
use crate::Result;
use crate::contenders::command::{Command, Contender, KEY, LEASE_MS, OWNER, Reentry, is_one};
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
/// Of the key that remembers the outcome of a release: retries times what one may take, by default (3 s and
/// about 2 s between two, four times).
pub const LATCH_MS: &str = "20000";

pub fn contender(connection: &mut Connection) -> Result<Contender> {
    let acquire = super::load_script(connection, TRY_LOCK)?;
    let release = super::load_script(connection, UNLOCK)?;
    Ok(pair(&acquire, &release))
}

/// By the hashes of its scripts.
pub fn pair(acquire: &str, release: &str) -> Contender {
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
    Contender {
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

/// A fresh id of 32 digits comes behind it, for each release.
pub fn latch(key: &str) -> String {
    format!("redisson_unlock_latch:{{{key}}}:")
}

/// `ServiceManager.generateId`.
pub fn request_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// `RedissonBaseLock.getLockName`: the process and the thread.
pub fn lock_name(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}:1")
}

struct RLock {
    wire: Wire,
    channel: Subscription,
    key: String,
    owner: String,
    lease_ms: String,
    try_lock: String,
    unlock: String,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    let mut wire = Wire::new(wanted.server.connect()?);
    let try_lock = super::load_script(wire.unlogged(), TRY_LOCK)?;
    let unlock = super::load_script(wire.unlogged(), UNLOCK)?;
    Ok(Box::new(RLock {
        wire,
        channel: Subscription::new(wanted.server.connect()?, channel(wanted.key)),
        key: wanted.key.into(),
        owner: lock_name(wanted.number),
        lease_ms: wanted.lease_ms.to_string(),
        try_lock,
        unlock,
    }))
}

impl Client for RLock {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let Self { wire, channel, .. } = self;
        let command = [
            "EVALSHA",
            &self.try_lock,
            "1",
            &self.key,
            &self.lease_ms,
            &self.owner,
        ];
        wait_on(channel, end, || ttl(&wire.call(&command)?))
    }

    fn release(&mut self) -> Result<()> {
        let latch = latch(&self.key) + &request_id();
        let reply = self.wire.call(&[
            "EVALSHA",
            &self.unlock,
            "3",
            &self.key,
            self.channel.name(),
            &latch,
            UNLOCK_MESSAGE,
            &self.lease_ms,
            &self.owner,
            "publish",
            LATCH_MS,
        ])?;
        expect(is_one(&reply), &reply)?;
        self.wire.call(&["DEL", &latch]).map(drop)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.wire.commands + self.channel.commands())
    }
}

/// What a try answers: nothing for success, else for how long the lock is held at most.
pub fn ttl(reply: &Reply) -> Result<Option<Duration>> {
    match reply {
        Reply::Null => Ok(None),
        // A key without an end: wait for a message, however long.
        Reply::Integer(ms) => Ok(Some(
            u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis),
        )),
        reply => Err(format!("an unexpected reply: {reply:?}").into()),
    }
}

/// `RedissonLock.lock`: try; subscribe; try again, now and after each message, or when the lease must have ended.
pub fn wait_on(
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

/// A connection that only listens, to one channel.
pub struct Subscription {
    wire: Wire,
    channel: String,
}

impl Subscription {
    pub fn new(connection: Connection, channel: String) -> Self {
        Self {
            wire: Wire::new(connection),
            channel,
        }
    }

    pub fn name(&self) -> &str {
        &self.channel
    }

    pub fn commands(&self) -> u64 {
        self.wire.commands
    }

    /// Returns once the server listens for us. What came before is of no interest any more.
    fn subscribe(&mut self) -> Result<()> {
        self.wire.send(&["SUBSCRIBE", &self.channel])?;
        while !is_push(&self.wire.receive()?, "subscribe") {}
        Ok(())
    }

    /// One message, or nothing until `end`.
    fn message(&mut self, end: Instant) -> Result<()> {
        while let Some(push) = self.wire.receive_until(end)? {
            if is_push(&push, "message") {
                break;
            }
        }
        Ok(())
    }

    /// Nobody waits for the answer: the caller has its lock.
    fn unsubscribe(&mut self) -> Result<()> {
        self.wire.send(&["UNSUBSCRIBE", &self.channel])
    }
}

fn is_push(reply: &Reply, kind: &str) -> bool {
    matches!(reply, Reply::Array(parts) if parts.first() == Some(&Reply::Bulk(kind.into())))
}
