#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod acquisition;
mod clocks;
mod error;
mod events;
mod guard;
mod held;
mod locks;
mod majority;
mod round;
mod servers;
mod standing;
mod thread;

pub use error::{Error, NoQuorum, NodeFailure, RunError};
pub use events::{Event, EventKind};
pub use guard::Guard;
pub use locks::{Lock, Locks, Settings};
pub use redis_dlock_client::{CancellationToken, Lost, Owner, Server};
