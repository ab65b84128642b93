//! DLOCK: distributed locks as native commands of Redis.
//!
//! What a lock is, and every way in which it changes, is the crate `dlock-core`. This crate is what Redis loads: it
//! opens keys, reads the clock, runs the core's transitions and carries out their effects.
//!
//! - `redis`: the module API, made safe. All `unsafe` code is here. It knows nothing of locks.
//! - `module`: what the server sees of the module as such: settings, the data type, events, INFO, the module's state.
//! - `reply`: replies and errors.
//! - `txn`: a change of one lock, from the open key to its effects.
//! - `commands`: one file for each command of clients.
//! - `waiting`: blocked clients and their queues.
//! - `replication`: what replicas and the append-only file get.
//! - `expiry`: leases that expire without anyone asking.
//! - `scheduler`: what runs from the cron and from timers, in order.
//!
//! Imports between files have no cycle: `redis` is at the bottom, `module::load` at the top, and `txn` between what a
//! change needs and what makes changes.
//!
//! `docs/architecture.md` walks through them.

#![deny(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod commands;
mod expiry;
mod module;
mod redis;
mod replication;
mod reply;
mod scheduler;
mod txn;
mod waiting;

use redis_module::alloc::RedisAlloc;
use redis_module::redis_module;

use module::data_type::LOCK_TYPE;
use module::load::load;

/// 0.1.0 as the server wants it.
const VERSION: i32 = 100;

redis_module! {
    name: "dlock",
    version: VERSION,
    allocator: (RedisAlloc, RedisAlloc),
    data_types: [LOCK_TYPE],
    init: load,
}
