//! Distributed locks with DLOCK.

pub mod clock;
#[cfg(feature = "tokio")]
mod connect;
mod error;
mod owner;
mod raw;
#[cfg(feature = "tokio")]
mod sync;

#[cfg(feature = "tokio")]
pub use connect::Address;
pub use error::Error;
pub use owner::Owner;
#[cfg(feature = "tokio")]
pub use raw::AsyncLockCommands;
pub use raw::{
    Acquire, Extend, Grant, HolderInfo, LockCommands, LockInfo, LockPipeline, Release, WaiterInfo,
};
