//! The commands, for any connection of redis-rs.

mod fenced;
mod reply;
mod request;

pub use fenced::{LUA_FENCE_CHECK, fenced};
#[cfg(feature = "locks")]
pub(crate) use reply::Milliseconds;
pub use reply::{Grant, HolderInfo, LockInfo, WaiterInfo};
pub use request::{Acquire, Extend, GetInfo, GetOwner, Release};
