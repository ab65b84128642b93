//! A drill that has run.

use dlock_drill::clients::Plan;
use dlock_drill::history::{History, Micros};
use dlock_drill::outcome::{Phase, phases};
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

impl Drill {
    pub fn phases(&self) -> Vec<Phase> {
        let faults: Vec<Micros> = self.faults.iter().map(|fault| fault.from).collect();
        phases(&self.history, self.start, &faults, self.end, &self.plan.passed)
    }
}
