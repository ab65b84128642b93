//! Distributed locks with DLOCK.

pub mod clock;
mod error;
mod owner;
mod raw;

pub use error::Error;
pub use owner::Owner;
#[cfg(feature = "tokio")]
pub use raw::AsyncLockCommands;
pub use raw::{
    Acquire, Extend, Grant, HolderInfo, LockCommands, LockInfo, LockPipeline, Release, WaiterInfo,
};
