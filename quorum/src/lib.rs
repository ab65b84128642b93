#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
//!
//! # Layout
//!
//! - `command`: the commands, their requests and replies.
//! - `hold`: the state of a hold as the client knows it. Pure: no I/O, no clock.
//! - `connect`: addresses, the shared connection, and the pool for blocked requests.
//! - `acquire`, `replicas`, `cancel`, `release`: the life of a lock.
//! - `renewal`: the thread that renews leases and works in the background, and what it shares with guards.
//! - `locks`, `guard`, `run`, `parts`, `events`, `blocking`: the interface for applications.
//! - `quorum`: locks on a majority of servers, built from guards on each of them.

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
mod options;
mod owner;
#[cfg(feature = "locks")]
mod parts;
#[cfg(feature = "quorum")]
pub mod quorum;
#[cfg(feature = "locks")]
mod release;
#[cfg(feature = "locks")]
mod renewal;
#[cfg(feature = "locks")]
mod replicas;
#[cfg(feature = "locks")]
mod run;
#[cfg(feature = "locks")]
mod sync;

/// The client library underneath. Its types are part of this crate's interface.
pub use redis;
#[cfg(feature = "locks")]
pub use tokio_util::sync::CancellationToken;

pub use clock::BootInstant;
pub use command::{
    Acquire, Extend, GetInfo, GetOwner, Grant, HolderInfo, LUA_FENCE_CHECK, LockInfo, Release, WaiterInfo,
    fenced,
};
#[cfg(feature = "cluster")]
pub use connect::slot_of;
pub use error::{Cause, Error, LostReason, RequestError};
pub use owner::Owner;
#[cfg(feature = "locks")]
pub use {
    client::Settings,
    connect::{Address, Endpoints},
    events::{Event, EventKind},
    guard::{Guard, GuardWatch},
    locks::{Lock, Locks},
    parts::GuardParts,
    run::RunError,
};
