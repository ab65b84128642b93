#![doc = include_str!("../README.md")]
//!
//! # Layout
//!
//! - `raw`: the five commands, their requests and answers.
//! - `hold`: what a client knows of a hold and does about it. Pure: no I/O, no clock.
//! - `connect`: where the server is, the connection that requests share, those on which they wait.
//! - `acquire`, `replicas`, `withdraw`, `release`: the way of a lock, there and back.
//! - `held`: what guards share with the keeper. All their races are there.
//! - `keeper`: the thread that renews, tells of losses, and finishes what others left.
//! - `locks`, `guard`, `blocking`: what applications see.
//! - `redlock`: the same on a majority of servers, made of guards on the single ones.

#[cfg(feature = "locks")]
mod acquire;
#[cfg(feature = "locks")]
mod backoff;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "locks")]
mod cancel;
#[cfg(feature = "locks")]
mod client;
mod clock;
mod command;
#[cfg(feature = "locks")]
mod connect;
mod error;
#[cfg(feature = "locks")]
mod events;
#[cfg(feature = "locks")]
mod guard;
#[cfg(feature = "locks")]
mod hold;
#[cfg(feature = "locks")]
mod identity;
#[cfg(feature = "locks")]
mod locks;
#[cfg(feature = "locks")]
mod lost;
#[cfg(feature = "locks")]
mod options;
mod owner;
#[cfg(feature = "redlock")]
pub mod redlock;
#[cfg(feature = "locks")]
mod release;
#[cfg(feature = "locks")]
mod renewal;
#[cfg(feature = "locks")]
mod replicas;
#[cfg(feature = "locks")]
mod sync;
#[cfg(feature = "locks")]
mod touch;

/// The client library underneath, whose types are part of this crate's interface.
pub use redis;
#[cfg(feature = "locks")]
pub use tokio_util::sync::CancellationToken;

#[cfg(feature = "blocking")]
pub use blocking::blocking_acquire_all;
pub use clock::BootInstant;
pub use command::{Acquire, Extend, GetInfo, GetOwner, Grant, HolderInfo, LockInfo, Release, WaiterInfo};
#[cfg(feature = "cluster")]
pub use connect::slot_of;
pub use error::Error;
pub use owner::Owner;
#[cfg(feature = "locks")]
pub use {
    client::Settings,
    connect::{Address, Endpoints},
    events::{Event, EventKind},
    guard::Guard,
    hold::LostReason,
    locks::{Guards, Lock, Locks, acquire_all},
};
