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

#[cfg(feature = "tokio")]
mod acquire;
#[cfg(feature = "tokio")]
mod backoff;
#[cfg(feature = "tokio")]
pub mod blocking;
#[cfg(feature = "tokio")]
mod cancel;
#[cfg(feature = "tokio")]
mod client;
pub mod clock;
#[cfg(feature = "tokio")]
mod connect;
mod error;
#[cfg(feature = "tokio")]
mod events;
#[cfg(feature = "tokio")]
mod guard;
#[cfg(feature = "tokio")]
mod hold;
#[cfg(feature = "tokio")]
mod identity;
#[cfg(feature = "tokio")]
mod locks;
#[cfg(feature = "tokio")]
mod lost;
#[cfg(feature = "tokio")]
mod options;
mod owner;
mod raw;
#[cfg(feature = "tokio")]
pub mod redlock;
#[cfg(feature = "tokio")]
mod release;
#[cfg(feature = "tokio")]
mod renewal;
#[cfg(feature = "tokio")]
mod replicas;
#[cfg(feature = "tokio")]
mod sync;
#[cfg(feature = "tokio")]
mod touch;

/// The client library underneath, whose types are part of this crate's interface.
pub use redis;
#[cfg(feature = "tokio")]
pub use tokio_util::sync::CancellationToken;

pub use error::Error;
pub use owner::Owner;
pub use raw::{
    Acquire, Extend, Grant, HolderInfo, LockCommands, LockInfo, LockPipeline, Release, WaiterInfo,
};
#[cfg(feature = "tokio")]
pub use {
    client::Settings,
    connect::Address,
    events::{Event, EventKind},
    guard::Guard,
    hold::LostReason,
    locks::{Guards, Lock, Locks, acquire_all},
    raw::AsyncLockCommands,
};
