//! The steps of scenarios. Each file has those of one subject; the README beside lists them all.

mod answers;
mod commands;
mod crowd;
mod faults;
mod server;
mod timing;
mod usage;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::scenario::Fields;
use crate::world::World;

type Step = fn(&mut World, &mut Fields) -> Outcome;

/// A step has exactly one of these fields.
const STEPS: [(&str, Step); 26] = [
    ("do", commands::command),
    ("expect", commands::expect),
    ("silent", commands::silent),
    ("lost", commands::lost),
    ("waiting", commands::waiting),
    ("end_of_input", commands::end_of_input),
    ("server", server::command),
    ("wait_for_lock", server::wait_for_lock),
    ("wait_for_info", server::wait_for_info),
    ("requests", server::requests),
    ("pause_ms", timing::pause),
    ("remaining", timing::remaining),
    ("network", faults::network),
    ("strand_request", faults::strand_request),
    ("lose_replies_to", faults::lose_replies_to),
    ("lose_replies_with", faults::lose_replies_with),
    ("wait_for_lost_replies", faults::wait_for_lost_replies),
    ("kill_connection", faults::kill_connection),
    ("unblock", faults::unblock),
    ("signal", faults::signal),
    ("server_process", faults::server_process),
    ("answer", answers::answer),
    ("wait_for_answers", answers::wait_for_answers),
    ("answered", answers::answered),
    ("crowd", crowd::crowd),
    ("usage", usage::usage),
];

/// Carries out one step.
pub fn run(world: &mut World, step: &Value) -> Outcome {
    let mut fields = Fields::of(step.clone())?;
    let found = STEPS.iter().find(|(name, _)| !step[name].is_null());
    let (_, run) = found.ok_or("no such step")?;
    run(world, &mut fields)?;
    fields.finish()
}
