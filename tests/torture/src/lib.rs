//! Tests the guarantees of DLOCK with real clients on real servers under a seeded schedule of faults.
//!
//! # Layout
//!
//! - [`scenarios`]: servers, clients, and the faults injected into them.
//! - [`clients`]: clients that record what they do, beyond those of `dlock_drill`.
//! - [`faults`]: faults beyond signals and commands.
//! - `dlock_drill`: the history of every request and reply with its times, checkers of the rules, and the search for a
//!   run of the specification with the same replies.
//! - [`verdict`], [`report`]: the result, and its output.
//!
//! The seed determines the faults, their times and the workload, but not the interleaving of threads and processes: a
//! repeated run is similar, not identical.

#![allow(missing_docs, reason = "only the tests of this workspace use this crate")]

pub mod clients;
pub mod faults;
pub mod options;
pub mod report;
pub mod scenarios;
pub mod servers;
pub mod verdict;

pub use dlock_drill::{checkers, export, history, specification};
