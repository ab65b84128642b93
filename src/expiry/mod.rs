//! The active expiry of leases.

pub mod sweeper;
pub mod untracked;
