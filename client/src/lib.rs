#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
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
