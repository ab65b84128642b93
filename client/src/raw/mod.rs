//! The five commands, on any connection of redis-rs.

mod reply;
mod request;
mod traits;

pub use reply::{Grant, HolderInfo, LockInfo, WaiterInfo};
pub use request::{Acquire, Extend, Release};
#[cfg(feature = "tokio")]
pub(crate) use request::{info_of, owner_of};
#[cfg(feature = "tokio")]
pub use traits::AsyncLockCommands;
pub use traits::{LockCommands, LockPipeline};
