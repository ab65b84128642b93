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
//!
//! Types of redis-rs 1.x are part of the interface, re-exported as [`redis`]: support for redis-rs 2.x will be a new major
//! version.
//!
//! | feature | what it adds |
//! |---|---|
//! | `cluster`, `sentinel` | `Locks::open` takes a `ClusterClient` or `SentinelClient` of redis-rs |
//! | `tls-rustls` | `rediss://` addresses |
//! | `testing` | `testing::TestServer`: a server in the process of a test |
//!
//! # Layout
//!
//! - `locks`, `guard`, `events`, `error`: the interface for applications. `command`: what is sent, and what is replied.
//! - `acquire`: the way of a request, from its caller to the server and back. `guard` has the ways of EXTEND and RELEASE.
//! - `link`: a connection for each runtime that sends; `server`: where it leads.
//! - `table`: all requests of a process. Pure, like `hold`, the clock and the state of a lease on it.
//! - `session`: what all locks share, and what the end of a process waits for. `background`: the thread that renews leases,
//!   and reads answers.

mod acquire;
mod background;
mod command;
mod error;
mod events;
mod guard;
mod hold;
mod link;
mod locks;
mod server;
mod session;
#[cfg(all(test, feature = "testing"))]
mod simulation;
mod table;
#[cfg(feature = "testing")]
pub mod testing;

/// The client library underneath. Its types are part of this crate's interface.
pub use redis;
pub use tokio_util::sync::CancellationToken;

pub use command::{HolderInfo, LUA_FENCE_CHECK, LockInfo, Owner, WaiterInfo};
pub use error::{Error, Lost};
pub use events::{End, Event, EventKind};
pub use guard::{Guard, RunError};
pub use hold::BootInstant;
pub use locks::{Lock, Locks, Settings};
pub use server::Server;
