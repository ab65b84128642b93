//! DLOCK: distributed locks as native commands of Redis.
//!
//! # Layout
//!
//! - [`lock`]: the core. Pure Rust: what a lock is, and every way in which it changes.
//! - [`server`]: the shell. Everything that calls Redis, or is called by it.
//!
//! A request goes one way:
//!
//! ```text
//! arguments -> dlock_core::request -> [server::change opens the key and reads the clock, once]
//!           -> dlock_core::step -> effects -> replicate, reply, wake, announce
//! ```
//!
//! Timers, the cron and other events of the server come in as steps of the same kind.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod commands;
mod expiry;
mod module;
mod redis;
mod replication;
mod txn;
mod waiting;

use redis_module::alloc::RedisAlloc;
use redis_module::{Context, RedisString, Status, redis_module};

use commands::{Acquire, Apply, Extend, Info, Owner, Probe, Release, Sync};
use module::data_type::LOCK_TYPE;
use module::load::{Register, command, load};

/// 0.1.0 as the server wants it.
const VERSION: i32 = 100;

const COMMANDS: &[Register] = &[
    command::<Acquire>, // DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id]
    command::<Release>, // DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]
    command::<Extend>,  // DLOCK.EXTEND key owner lease-ms [FENCE fence]
    command::<Owner>,   // DLOCK.OWNER key
    command::<Info>,    // DLOCK.INFO key
    command::<Apply>,   // DLOCK.APPLY key change: replication and the log only
    command::<Probe>,   // DLOCK.PROBE key: the module itself only
    command::<Sync>,    // DLOCK.SYNC fence grace-left-ms: replication and the log only
];

fn init(context: &Context, args: &[RedisString]) -> Status {
    load(context, args, COMMANDS)
}

redis_module! {
    name: "dlock",
    version: VERSION,
    allocator: (RedisAlloc, RedisAlloc),
    data_types: [LOCK_TYPE],
    init: init,
}
