//! Locks on a majority of several independent servers: Redlock with fences and a fair queue.

mod acquire;
mod ask;
#[cfg(feature = "blocking")]
mod blocking;
mod fences;
mod guard;
mod health;
mod held;
mod locks;
mod majority;
mod member;
mod release;
mod round;
mod servers;
mod slices;

pub use crate::error::{NoQuorum, NodeFailure};
pub use guard::Guard;
pub use locks::{Exclusive, Lock, Locks, Mode, Shared};
