//! The core of DLOCK without a server: models for an exhaustive search, and fuzz targets.
//!
//! # Layout
//!
//! - [`failover`]: failovers, restarts and grace periods; [`slots`]: a cluster slot that migrates. Models.
//! - [`search`]: breadth-first search through all states of a model.
//! - [`fuzz`]: one function per fuzz target. `fuzz/` runs them with a fuzzer, the tests with its corpus.

#![allow(missing_docs, reason = "only the tests of this workspace use this crate")]

pub mod failover;
pub mod fuzz;
pub mod search;
pub mod slots;
