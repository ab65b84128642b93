//! Clients of the lock server and their workloads.

mod client_pool;
mod conn_cutter;
pub mod holder;
pub mod inbox;
mod quorum_holder;
mod route;
mod store;

pub use client_pool::{ClientPool, PooledClient};
pub use conn_cutter::ConnCutter;
pub use dlock_drill::clients::{Gate, Workload};
pub use quorum_holder::QuorumHolder;
pub use route::{ClientRoute, Route, Target};
pub use store::{Fencing, Store};

/// A client whose connection can be cut.
pub type LockClient = dlock_drill::clients::LockClient<ClientRoute>;
