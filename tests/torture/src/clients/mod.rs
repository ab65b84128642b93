//! Clients of the lock server and their workloads.

mod client_pool;
mod conn_cutter;
mod promise;
mod quorum_holder;
mod route;
pub mod service;

pub use client_pool::{ClientPool, PooledClient};
pub use conn_cutter::ConnCutter;
pub use dlock_drill::clients::{Gate, Workload};
pub use promise::Promise;
pub use quorum_holder::QuorumHolder;
pub use route::{ClientRoute, Route, Target};

/// A client whose connection can be cut.
pub type LockClient = dlock_drill::clients::LockClient<ClientRoute>;
