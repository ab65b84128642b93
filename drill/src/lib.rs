//! Contenders that record every request with its reply, and checkers that find violated rules in such a history.
//!
//! `dlock drill` runs them against the deployment of an operator, and `tests/torture` against servers that it starts.
//!
//! - [`clients`]: clients, and the workload that they run.
//! - [`history`]: every request and reply with its times.
//! - [`checkers`]: find violated rules in a history.
//! - [`specification`]: whether a history is a run of the rules in `spec/`.
//! - [`export`]: histories for checkers that others have written.
//! - [`outcome`]: what happened before and after each fault.

#![allow(missing_docs, reason = "only crates of this workspace use this one")]

pub mod checkers;
pub mod clients;
pub mod export;
pub mod history;
pub mod outcome;
#[cfg(test)]
mod recorded;
pub mod specification;
