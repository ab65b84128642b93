//! Deadlock detection: which waiters could never be granted the lock that they wait for.
//!
//! The wait table hands over the part of the graph that the request depends on: the holders of its lock and the
//! waiters queued ahead, the locks that these wait for, and so on. Each owner releases once, and each request is
//! admitted once.

mod cycle;
mod graph;
mod reduction;

pub use cycle::Cycle;
#[cfg(any(test, feature = "testing"))]
pub(crate) use cycle::Link;
pub(crate) use graph::{Node, WaitForGraph};
pub(crate) use reduction::{Found, search};
