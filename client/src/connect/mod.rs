//! Connections: where the server is, one that all requests share, and those that wait.

mod address;
mod connection;
mod link;
#[cfg(feature = "cluster")]
mod slots;
mod waiting;

pub use address::Address;
pub(crate) use connection::{Purpose, Timeouts};
pub(crate) use link::{Link, Route};
pub(crate) use waiting::{BlockingPool, PooledConnection};
