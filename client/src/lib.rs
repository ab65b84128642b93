#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
//!
//! # Overview
//!
//! | | |
//! |---|---|
//! | [`Locks`] | all locks of a deployment: `open`, `with` settings, `lock(key)`, `acquire(key)`, `ping`, `shutdown` |
//! | [`Lock`] | one lock: `lease`, `timeout`, `shared`, `limit`, `max_hold`, `release_after`, `owner`; then `acquire`, `try_acquire`, `run`, `try_run`, `info` |
//! | [`Guard`] | a lock that is held: `fence`, `query`, `fenced`, `is_held`, `remaining`, `lost().await`, `token`, `extend`, `release` |
//! | [`Settings`] | the response timeout, and a hook for metrics; the same events go to `tracing` |
//! | [`Error`], [`Lost`], [`RunError`] | what went wrong, why a lock is lost, why work under a lock has no result |
//! | [`Acquire`], [`Release`], [`Extend`], [`GetOwner`], [`GetInfo`], [`fenced`] | the commands, for your own connections of redis-rs |
//!
//! Types of redis-rs 1.x are part of the interface, re-exported as [`redis`]: support for redis-rs 2.x will be a new major
//! version.
//!
//! | feature | what it adds |
//! |---|---|
//! | `cluster`, `sentinel` | `Locks::open` takes a `ClusterClient` or `SentinelClient` of redis-rs |
//! | `tls-rustls` | `rediss://` addresses |
//! | `replicas` | `Lock::replicas` and `Lock::fsynced`: locks that replicas or disks must have before they count |
//! | `testing` | `testing::TestServer`: a server in the process of a test |
//!
//! # Layout
//!
//! - `locks`, `guard`, `events`, `error`: the interface for applications. `command`: the commands, for connections of
//!   your own.
//! - `request`: what goes to the thread. `driver`: the thread; `server`: its connections; `reader`: its calls of GRANTS.
//! - `session`: all requests of a process, and what is to be sent for them. Pure, like `stage`, `hold` and `clock`, which
//!   hold its data, and `waiting` and `release`, which are its two halves.
//! - `several`: what the crate for locks over several servers needs beyond that.

mod clock;
mod command;
mod driver;
mod error;
mod events;
mod guard;
mod hold;
mod locks;
mod reader;
mod release;
#[cfg(feature = "replicas")]
mod replicas;
mod request;
mod server;
mod session;
#[doc(hidden)]
pub mod several;
mod stage;
#[cfg(feature = "testing")]
pub mod testing;
mod waiting;

/// The client library underneath. Its types are part of this crate's interface.
pub use redis;
pub use tokio_util::sync::CancellationToken;

pub use clock::BootInstant;
pub use command::{
    Acquire, Command, Extend, GetInfo, GetOwner, Grant, HolderInfo, LUA_FENCE_CHECK, LockInfo, Owner,
    Release, WaiterInfo, fenced,
};
pub use error::{Error, Lost};
pub use events::{End, Event, EventKind};
pub use guard::{Guard, RunError};
pub use locks::{Lock, Locks, Settings};
pub use server::Server;
