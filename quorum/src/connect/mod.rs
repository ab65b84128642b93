//! Connections: where the server is, the connection that requests share, and the pool for blocked requests.

mod address;
mod certificates;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
mod discovery;
mod endpoints;
mod errors;
mod link;
mod pool;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
#[cfg(feature = "cluster")]
mod slots;
mod tcp;
#[cfg(feature = "tls-rustls")]
mod tls;

pub use address::Address;
pub(crate) use connection::{Purpose, Timeouts};
pub use endpoints::Endpoints;
pub(crate) use link::{Link, Route};
pub(crate) use pool::{BlockingPool, Permit, PooledConnection, WaitLimits};
#[cfg(feature = "cluster")]
pub use slots::slot_of;
