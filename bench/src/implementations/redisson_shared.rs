//! Redisson's read-write lock and its semaphore, from github.com/redisson/redisson at 6686397:
//! `org.redisson.RedissonReadLock`, `RedissonWriteLock` and `RedissonSemaphore` (`tryAcquireAsync0`,
//! `releaseAsync`, `acquire`). They wait like `RLock`.
//!
//! The semaphore is a counter without owners and leases, so it does less than the others here, and the permit of a
//! client that dies is lost.

use std::time::Duration;

use super::counting::owned;
use super::redisson::{LATCH_MS, Waiter, Words, latch, lock_name, ttl};
use super::{Client, ClientConfig, PERMITS};
use crate::Result;
use crate::implementations::command::is_one;
use crate::resp::Reply;

const TRY_READ: &str = "local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call('hset', KEYS[1], 'mode', 'read'); \
redis.call('hset', KEYS[1], ARGV[2], 1); \
redis.call('set', KEYS[2] .. ':1', 1); \
redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]); \
redis.call('pexpire', KEYS[1], ARGV[1]); \
return nil; \
end; \
if (mode == 'read') or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then \
local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1); \
local key = KEYS[2] .. ':' .. ind;\
redis.call('set', key, 1); \
redis.call('pexpire', key, ARGV[1]); \
local remainTime = redis.call('pttl', KEYS[1]); \
redis.call('pexpire', KEYS[1], math.max(remainTime, ARGV[1])); \
return nil; \
end;\
return redis.call('pttl', KEYS[1]);";

const UNLOCK_READ: &str = "local val = redis.call('get', KEYS[5]); \
if val ~= false then \
return tonumber(val);\
end; \
local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call(ARGV[3], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[5], 1, 'px', ARGV[4]); \
return nil; \
end; \
local lockExists = redis.call('hexists', KEYS[1], ARGV[2]); \
if (lockExists == 0) then \
return nil;\
end; \
local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1); \
if (counter == 0) then \
redis.call('hdel', KEYS[1], ARGV[2]); \
end;\
redis.call('del', KEYS[3] .. ':' .. (counter+1)); \
if (redis.call('hlen', KEYS[1]) > 1) then \
local maxRemainTime = -3; \
local keys = redis.call('hkeys', KEYS[1]); \
for n, key in ipairs(keys) do \
counter = tonumber(redis.call('hget', KEYS[1], key)); \
if type(counter) == 'number' then \
for i=counter, 1, -1 do \
local remainTime = redis.call('pttl', KEYS[4] .. ':' .. key .. ':rwlock_timeout:' .. i); \
maxRemainTime = math.max(remainTime, maxRemainTime);\
end; \
end; \
end; \
if maxRemainTime > 0 then \
redis.call('pexpire', KEYS[1], maxRemainTime); \
redis.call('set', KEYS[5], 0, 'px', ARGV[4]); \
return 0; \
end;\
if mode == 'write' then \
redis.call('set', KEYS[5], 0, 'px', ARGV[4]); \
return 0;\
end; \
end; \
redis.call('del', KEYS[1]); \
redis.call(ARGV[3], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[5], 1, 'px', ARGV[4]); \
return 1; ";

const TRY_WRITE: &str = "local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call('hset', KEYS[1], 'mode', 'write'); \
redis.call('hset', KEYS[1], ARGV[2], 1); \
redis.call('pexpire', KEYS[1], ARGV[1]); \
return nil; \
end; \
if (mode == 'write') then \
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
redis.call('hincrby', KEYS[1], ARGV[2], 1); \
local currentExpire = redis.call('pttl', KEYS[1]); \
redis.call('pexpire', KEYS[1], currentExpire + ARGV[1]); \
return nil; \
end; \
end;\
return redis.call('pttl', KEYS[1]);";

const UNLOCK_WRITE: &str = "local val = redis.call('get', KEYS[3]); \
if val ~= false then \
return tonumber(val);\
end; \
local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call(ARGV[4], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
return nil; \
end;\
if (mode == 'write') then \
local lockExists = redis.call('hexists', KEYS[1], ARGV[3]); \
if (lockExists == 0) then \
return nil;\
else \
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
if (counter > 0) then \
redis.call('pexpire', KEYS[1], ARGV[2]); \
redis.call('set', KEYS[3], 0, 'px', ARGV[5]); \
return 0; \
else \
redis.call('hdel', KEYS[1], ARGV[3]); \
if (redis.call('hlen', KEYS[1]) == 1) then \
redis.call('del', KEYS[1]); \
redis.call(ARGV[4], KEYS[2], ARGV[1]); \
else \
redis.call('hset', KEYS[1], 'mode', 'read'); \
end; \
redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
return 1; \
end; \
end; \
end; \
return nil;";

const TRY_PERMIT: &str = "local value = redis.call('get', KEYS[1]); \
if (value ~= false and tonumber(value) >= tonumber(ARGV[1])) then \
local val = redis.call('decrby', KEYS[1], ARGV[1]); \
return 1; \
end; \
return 0;";

const RELEASE_PERMIT: &str = "local value = redis.call('incrby', KEYS[1], ARGV[1]); \
redis.call(ARGV[2], KEYS[2], value); ";

/// `LockPubSub`: wakes one waiter, or all.
const UNLOCK_MESSAGE: &str = "0";
const READ_UNLOCK_MESSAGE: &str = "1";

pub fn open_reader(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let (key, owner, lease_ms) = (config.key, lock_name(config.number), config.lease_ms.to_string());
    let (channel, latch) = (channel("redisson_rwlock", key), latch(key));
    // `getReadWriteTimeoutNamePrefix`.
    let timeouts = format!("{{{key}}}:{owner}:rwlock_timeout");
    let (prefix, write_name) = (format!("{{{key}}}"), format!("{owner}:write"));
    Waiter::open(config, &channel, [TRY_READ, UNLOCK_READ], |[acquire, release]| {
        Words {
            acquire: owned(&[
                "EVALSHA",
                acquire,
                "2",
                key,
                &timeouts,
                &lease_ms,
                &owner,
                &write_name,
            ]),
            release: owned(&[
                "EVALSHA",
                release,
                "5",
                key,
                &channel,
                &timeouts,
                &prefix,
                &latch,
                UNLOCK_MESSAGE,
                &owner,
                "publish",
                LATCH_MS,
            ]),
            latch: Some(latch.clone()),
            remaining: ttl,
            is_released: |reply| matches!(reply, Reply::Integer(0 | 1)),
        }
    })
}

pub fn open_writer(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let (key, lease_ms) = (config.key, config.lease_ms.to_string());
    let owner = lock_name(config.number) + ":write";
    let (channel, latch) = (channel("redisson_rwlock", key), latch(key));
    Waiter::open(
        config,
        &channel,
        [TRY_WRITE, UNLOCK_WRITE],
        |[acquire, release]| Words {
            acquire: owned(&["EVALSHA", acquire, "1", key, &lease_ms, &owner]),
            release: owned(&[
                "EVALSHA",
                release,
                "3",
                key,
                &channel,
                &latch,
                READ_UNLOCK_MESSAGE,
                &lease_ms,
                &owner,
                "publish",
                LATCH_MS,
            ]),
            latch: Some(latch.clone()),
            remaining: ttl,
            is_released: is_one,
        },
    )
}

pub fn open_semaphore(config: &ClientConfig) -> Result<Box<dyn Client>> {
    // `trySetPermits`: the first client sets the number of permits.
    let permits = ["SET", config.key, &PERMITS.to_string(), "NX"];
    config.server.connect()?.call(&permits)?;
    let channel = channel("redisson_sc", config.key);
    Waiter::open(
        config,
        &channel,
        [TRY_PERMIT, RELEASE_PERMIT],
        |[acquire, release]| Words {
            acquire: owned(&["EVALSHA", acquire, "1", config.key, "1"]),
            release: owned(&["EVALSHA", release, "2", config.key, &channel, "1", "publish"]),
            latch: None,
            // There is no lease whose end to wait for.
            remaining: |reply| Ok((*reply != Reply::Integer(1)).then_some(Duration::MAX)),
            is_released: |_| true,
        },
    )
}

fn channel(prefix: &str, key: &str) -> String {
    format!("{prefix}:{{{key}}}")
}
