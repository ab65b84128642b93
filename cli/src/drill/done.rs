//! A drill that has run.

use dlock_drill::clients::Plan;
use dlock_drill::history::{History, Micros};
use nix::sys::signal::Signal;

use super::fault::Fault;
use super::route::Term;
use crate::doctor::Facts;

/// What has run.
pub struct Drill {
    pub plan: Plan,
    /// What is known of the servers, from before the first fault.
    pub deployment: Vec<Facts>,
    pub faults: Vec<Fault>,
    pub start: Micros,
    pub end: Micros,
    pub history: History,
    pub terms: Vec<Term>,
    pub interrupted: Option<Signal>,
}
