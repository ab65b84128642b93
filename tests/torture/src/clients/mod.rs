//! Clients of the lock server and their workloads.

mod client_pool;
mod gate;
pub mod holder;
pub mod inbox;
mod lock_client;
mod quorum_holder;
mod route;
mod store;
mod worker;

pub use client_pool::{ClientPool, PooledClient};
pub use gate::Gate;
pub use lock_client::{ConnCutter, LockClient};
pub use quorum_holder::QuorumHolder;
pub use route::{Route, Target};
pub use store::{Fencing, Store};
pub use worker::Workload;
