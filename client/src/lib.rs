#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
//!
//! # Layout
//!
//! - `locks`, `lock`, `guard`, `events`, `error`: the interface for applications.
//! - `request`: what goes to the thread. `driver`: the thread; `server`: its connections; `reader`: its calls of GRANTS.
//! - `session`: all requests of a process, and what is to be sent for them. Pure, like `waiting` and `release`, which
//!   hold its stages, and `inbox` and `hold`.
//! - `command`, `reply`, `clock`: the commands, for connections of your own.

mod backoff;
mod clock;
mod command;
mod driver;
mod error;
mod events;
mod exit;
mod guard;
mod hold;
mod inbox;
mod lock;
mod locks;
mod owner;
mod reader;
mod release;
#[cfg(feature = "replicas")]
mod replicas;
mod reply;
mod request;
mod server;
mod session;
mod stage;
#[cfg(feature = "testing")]
pub mod testing;
mod waiting;

/// The client library underneath. Its types are part of this crate's interface.
pub use redis;
pub use tokio_util::sync::CancellationToken;

pub use clock::BootInstant;
pub use command::{Acquire, Command, Extend, GetInfo, GetOwner, LUA_FENCE_CHECK, Release, fenced};
pub use error::{Error, Lost};
pub use events::{End, Event, EventKind};
pub use guard::{Guard, RunError};
pub use lock::Lock;
pub use locks::{Locks, Settings};
pub use owner::Owner;
pub use reply::{Grant, HolderInfo, LockInfo, WaiterInfo};
pub use server::Server;
