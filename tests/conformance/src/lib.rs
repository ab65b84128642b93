//! One set of scenarios that the client library of every language must pass: see the README beside.
//!
//! - [`scenario`]: the scenarios, which are data, and [`pattern`]: what they expect. [`cells`] makes those of the table of
//!   errors, which [`error_table`] reads.
//! - [`driver`]: a program in some language that speaks the protocol, as a process, [`output`]: what it writes,
//!   [`launch`]: how it is started.
//! - [`world`]: the servers, networks and drivers of one scenario. [`steps`] carries out what a scenario says,
//!   [`usage`] counts what a driver uses. [`setting`]: which servers a run is asked to use.
//! - [`history`] and [`requests`] check what the drivers and the server saw, [`aftermath`] what is left at the end;
//!   [`asked`] and [`key`]: what they were about.
//! - [`run`]: scenarios of a level, side by side; [`places`]: how many at once.

#![allow(missing_docs, reason = "only the tests of this workspace use this crate")]

pub mod aftermath;
pub mod asked;
pub mod cells;
pub mod driver;
pub mod error_table;
pub mod history;
pub mod key;
pub mod launch;
pub mod outcome;
pub mod output;
pub mod pattern;
pub mod places;
pub mod requests;
pub mod run;
pub mod scenario;
pub mod setting;
pub mod steps;
pub mod usage;
pub mod world;
