//! Attacks what DLOCK promises: real clients on real servers under a seeded schedule of faults.
//!
//! # Layout
//!
//! - [`scenarios`]: servers, clients, and what is done to them, one file a kind.
//! - [`clients`]: what clients do, and write down.
//! - [`faults`]: what is done to servers beyond signals and commands.
//! - [`history`]: every request and reply, with its times.
//! - [`checkers`]: read a history and say which rules it breaks.
//! - [`verdict`], [`report`]: what comes of it, for people.
//!
//! The seed chooses the faults, their moments and what clients do next. How threads and processes
//! interleave it cannot choose, so a run that is repeated is alike, not the same.

pub mod checkers;
pub mod clients;
pub mod faults;
pub mod history;
pub mod options;
pub mod report;
pub mod scenarios;
pub mod servers;
pub mod verdict;
