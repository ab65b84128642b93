//! The five commands, for any connection of redis-rs.

mod reply;
mod request;

pub use reply::{Grant, HolderInfo, LockInfo, WaiterInfo};
pub use request::{Acquire, Extend, GetInfo, GetOwner, Release};
