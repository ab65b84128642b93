//! The settings: `CONFIG GET/SET dlock.*`, `redis.conf`, MODULE LOADEX.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::configuration::{
    ConfigurationFlags, register_bool_configuration, register_i64_configuration,
};
use redis_module::{Context, raw};

use crate::redis::api::required;
use dlock_core::{GraceLength, GraceSettings};

/// Ten years. Together with the range of the clock it keeps every sum of times far from overflow.
pub const LONGEST_MS: i64 = 10 * 366 * 24 * 60 * 60 * 1000;

pub static MAX_LEASE_MS: AtomicI64 = AtomicI64::new(0);
pub static MAX_WAITERS_PER_LOCK: AtomicI64 = AtomicI64::new(0);
pub static DEADLOCK_DETECTION: AtomicBool = AtomicBool::new(false);
pub static STARTUP_GRACE_MS: AtomicI64 = AtomicI64::new(0);
pub static FAILOVER_GRACE_MS: AtomicI64 = AtomicI64::new(0);
pub static ALLOW_EVICTION: AtomicBool = AtomicBool::new(false);

/// Name, default, smallest and largest value.
type Numeric = (&'static str, &'static AtomicI64, i64, i64, i64);

const NUMBERS: [Numeric; 4] = [
    ("max-lease-ms", &MAX_LEASE_MS, 86_400_000, 1, LONGEST_MS),
    (
        "max-waiters-per-lock",
        &MAX_WAITERS_PER_LOCK,
        10_000,
        0,
        u32::MAX as i64,
    ),
    ("startup-grace-ms", &STARTUP_GRACE_MS, 0, -1, LONGEST_MS),
    ("failover-grace-ms", &FAILOVER_GRACE_MS, 0, -1, LONGEST_MS),
];

const SWITCHES: [(&str, &AtomicBool, bool); 2] = [
    ("deadlock-detection", &DEADLOCK_DETECTION, true),
    ("allow-eviction", &ALLOW_EVICTION, false),
];

/// Registers the settings and takes over what the configuration file says; false when that is wrong.
pub fn register(context: &Context) -> bool {
    let flags = || ConfigurationFlags::DEFAULT;
    for (name, variable, default, min, max) in NUMBERS {
        register_i64_configuration(context, name, variable, default, min, max, flags(), None);
    }
    for (name, variable, default) in SWITCHES {
        register_bool_configuration(context, name, variable, default, flags(), None);
    }
    // SAFETY: the context is valid during the call.
    unsafe { required(raw::RedisModule_LoadConfigs)(context.ctx) == raw::REDISMODULE_OK as i32 }
}

pub fn max_lease_ms() -> u64 {
    u64::try_from(MAX_LEASE_MS.load(Ordering::Relaxed)).unwrap_or(1)
}

pub fn max_waiters_per_lock() -> usize {
    usize::try_from(MAX_WAITERS_PER_LOCK.load(Ordering::Relaxed)).unwrap_or(0)
}

pub fn deadlock_detection() -> bool {
    DEADLOCK_DETECTION.load(Ordering::Relaxed)
}

pub fn allow_eviction() -> bool {
    ALLOW_EVICTION.load(Ordering::Relaxed)
}

/// The graces that are set, -1 = as long as the longest lease.
pub fn graces() -> GraceSettings {
    let length = |setting: &AtomicI64| {
        let longest = GraceLength::LongestLease {
            max_lease_ms: max_lease_ms(),
        };
        u64::try_from(setting.load(Ordering::Relaxed)).map_or(longest, GraceLength::Ms)
    };
    GraceSettings {
        startup: length(&STARTUP_GRACE_MS),
        failover: length(&FAILOVER_GRACE_MS),
    }
}
