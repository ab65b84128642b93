//! Leases that expire without anyone asking for their locks.

pub mod keyspace_scan;
pub mod sweeper;
pub mod untracked;
