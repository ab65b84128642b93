//! The core of DLOCK without a server: what fuzzers feed, and what a search tries all ways through.
//!
//! The core is included, not linked: the module's own library brings the server's allocator along.
//!
//! # Layout
//!
//! - [`lock`]: the core, the same files that the module is built from.
//! - [`fuzz`]: one function a fuzz target. `fuzz/` runs them with a fuzzer, the tests with its corpus.

#[path = "../../src/lock/mod.rs"]
#[allow(
    missing_docs,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "public only to this crate's users; the module's own lints look after it"
)]
pub mod lock;

pub mod failover;
pub mod fuzz;
pub mod search;
