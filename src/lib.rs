//! DLOCK: distributed locks as native commands of Redis.
//!
//! What a lock is, and every way in which it changes, is the crate `dlock-core`. This crate is what Redis loads: it
//! opens keys, reads the clock, runs the core's transitions and carries out their effects.
//!
//! `docs/architecture.md` describes the folders and walks through them.

#![deny(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod background;
mod change;
mod commands;
mod events;
mod info;
mod load;
mod redis;
mod state;

use redis_module::alloc::RedisAlloc;
use redis_module::redis_module;

use change::lock_value::LOCK_TYPE;
use load::load;

/// What MODULE LIST shows: 10000 * major + 100 * minor + patch.
const VERSION: i32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// A part of the version.
const fn number(digits: &str) -> i32 {
    match i32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

redis_module! {
    name: "dlock",
    version: VERSION,
    allocator: (RedisAlloc, RedisAlloc),
    data_types: [LOCK_TYPE],
    init: load,
}
