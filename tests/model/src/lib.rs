//! The core of DLOCK without a server: what fuzzers feed, and what a search tries all ways through.
//!
//! # Layout
//!
//! - [`failover`]: failovers, starts and graces; [`slots`]: a cluster slot that moves. Worlds for a search.
//! - [`search`]: tries every way through a world, shortest ways first.
//! - [`fuzz`]: one function a fuzz target. `fuzz/` runs them with a fuzzer, the tests with its corpus.

#![allow(missing_docs, reason = "names say it: nobody but our tests uses this crate")]

pub mod failover;
pub mod fuzz;
pub mod search;
pub mod slots;
