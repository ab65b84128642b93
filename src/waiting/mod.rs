//! Clients that wait for a lock.

pub mod blocked_clients;
pub mod due;
