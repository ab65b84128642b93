//! The core of DLOCK without a server: a model for an exhaustive search, and fuzz targets.
//!
//! # Layout
//!
//! - [`slots`]: the model of a cluster slot that migrates.
//! - [`search`]: breadth-first search through all states of a model.
//! - [`fuzz`]: one function per fuzz target. `fuzz/` runs them with a fuzzer, the tests with its corpus.

#![allow(missing_docs, reason = "only the tests of this workspace use this crate")]

pub mod fuzz;
pub mod search;
pub mod slots;
