//! Clients that wait for a lock.

pub mod blocked_clients;
pub mod clients;
pub mod due;
pub mod gate;
pub mod rollback;
pub mod timer;
