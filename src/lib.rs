//! DLOCK: distributed locks as native commands of Redis.
//!
//! What a lock is, every way in which it changes, and how a change is carried out, is the crate `dlock-core`. This crate
//! is what Redis loads: it is the host of the core's engine in a server, and parses and replies.
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

mod commands;
mod events;
mod host;
mod info;
mod load;
mod redis;

use redis_module::alloc::RedisAlloc;
use redis_module::redis_module;

use host::lock_value::LOCK_TYPE;
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
