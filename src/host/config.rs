//! The settings: `CONFIG GET/SET dlock.*`, `redis.conf`, MODULE LOADEX.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use dlock_core::{GraceLength, GraceSettings, Policy};

use crate::redis::{Consistency, Ctx, Number, Switch};

const MAX_MS: i64 = dlock_core::engine::MAX_MS.cast_signed();

static MAX_LEASE_MS: AtomicI64 = AtomicI64::new(0);
static MAX_WAITERS_PER_LOCK: AtomicI64 = AtomicI64::new(0);
static MAX_WAITERS: AtomicI64 = AtomicI64::new(0);
static MAX_INBOXES: AtomicI64 = AtomicI64::new(0);
static MAX_HOLDERS: AtomicI64 = AtomicI64::new(0);
static DEADLOCK_DETECTION: AtomicBool = AtomicBool::new(false);
static STARTUP_GRACE_MS: AtomicI64 = AtomicI64::new(0);
static FAILOVER_GRACE_MS: AtomicI64 = AtomicI64::new(0);
static MIN_SYNC_REPLICAS: AtomicI64 = AtomicI64::new(0);
static SYNC_TIMEOUT_MS: AtomicI64 = AtomicI64::new(0);
static ALLOW_EVICTION: AtomicBool = AtomicBool::new(false);
static QUORUM: AtomicBool = AtomicBool::new(false);
static KEEP_FENCE: AtomicBool = AtomicBool::new(true);

const fn number(name: &'static str, value: &'static AtomicI64, default: i64, min: i64, max: i64) -> Number {
    Number {
        name,
        value,
        default,
        min,
        max,
    }
}

const fn switch(name: &'static str, value: &'static AtomicBool, default: bool) -> Switch {
    Switch { name, value, default }
}

const MAX_COUNT: i64 = u32::MAX as i64;

/// The deadlock detection knows the limits of locks with up to 64 holders, but not this setting.
const MIN_MAX_HOLDERS: i64 = 64;

const NUMBERS: [Number; 9] = [
    number("max-lease-ms", &MAX_LEASE_MS, 600_000, 1, MAX_MS),
    number(
        "max-waiters-per-lock",
        &MAX_WAITERS_PER_LOCK,
        10_000,
        0,
        MAX_COUNT,
    ),
    number("max-waiters", &MAX_WAITERS, 1_000_000, 0, MAX_COUNT),
    number("max-inboxes", &MAX_INBOXES, 10_000, 0, MAX_COUNT),
    number("max-holders", &MAX_HOLDERS, 10_000, MIN_MAX_HOLDERS, MAX_COUNT),
    number("startup-grace-ms", &STARTUP_GRACE_MS, 0, -1, MAX_MS),
    number("failover-grace-ms", &FAILOVER_GRACE_MS, 0, -1, MAX_MS),
    number("min-sync-replicas", &MIN_SYNC_REPLICAS, 0, 0, 100),
    number("sync-timeout-ms", &SYNC_TIMEOUT_MS, 1_000, 10, 60_000),
];

const SWITCHES: [Switch; 4] = [
    switch("deadlock-detection", &DEADLOCK_DETECTION, true),
    switch("allow-eviction", &ALLOW_EVICTION, false),
    switch("quorum", &QUORUM, false),
    switch("keep-fence", &KEEP_FENCE, true),
];

/// Registers the settings and takes over what the configuration file says; false when that is wrong.
pub fn register(ctx: &mut Ctx<'_>) -> bool {
    ctx.register_settings::<QuorumOrReplicas>(&NUMBERS, &SWITCHES)
}

pub fn max_lease_ms() -> u64 {
    u64::try_from(MAX_LEASE_MS.load(Ordering::Relaxed)).unwrap_or(1)
}

/// Whether this server is one of a quorum.
pub fn is_quorum() -> bool {
    QUORUM.load(Ordering::Relaxed)
}

pub fn allow_eviction() -> bool {
    ALLOW_EVICTION.load(Ordering::Relaxed)
}

/// Whether files keep the fence counter while no lock is stored.
pub fn keep_fence() -> bool {
    KEEP_FENCE.load(Ordering::Relaxed)
}

/// The servers of a quorum have no replicas.
pub struct QuorumOrReplicas;

impl Consistency for QuorumOrReplicas {
    fn check() -> Result<(), &'static str> {
        if is_quorum() && count(&MIN_SYNC_REPLICAS) > 0 {
            return Err(
                "dlock.quorum yes and dlock.min-sync-replicas exclude each other: set only one of them",
            );
        }
        Ok(())
    }
}

/// What the core decides by.
pub fn policy(evictable: bool) -> Policy {
    Policy {
        max_waiters_per_lock: count(&MAX_WAITERS_PER_LOCK),
        max_waiters: count(&MAX_WAITERS),
        max_inboxes: count(&MAX_INBOXES),
        max_holders: Some(count(&MAX_HOLDERS)),
        detect_deadlocks: DEADLOCK_DETECTION.load(Ordering::Relaxed),
        evictable,
        is_quorum: is_quorum(),
        min_sync_replicas: count(&MIN_SYNC_REPLICAS),
        sync_timeout_ms: u64::try_from(SYNC_TIMEOUT_MS.load(Ordering::Relaxed)).unwrap_or(0),
        graces: GraceSettings {
            startup: grace_length(&STARTUP_GRACE_MS),
            failover: grace_length(&FAILOVER_GRACE_MS),
        },
    }
}

fn count(setting: &AtomicI64) -> usize {
    usize::try_from(setting.load(Ordering::Relaxed)).unwrap_or(0)
}

/// -1 = as long as the longest lease.
fn grace_length(setting: &AtomicI64) -> GraceLength {
    let longest = GraceLength::LongestLease {
        max_lease_ms: max_lease_ms(),
    };
    u64::try_from(setting.load(Ordering::Relaxed)).map_or(longest, GraceLength::Ms)
}
