//! At the end servers are empty and none has crashed.

use super::{Rule, Violation};
use crate::history::{FinalState, History};

/// Servers that crashed, or that have keys or waiters after the last lease has expired.
pub fn unclean_final_states(history: &History) -> Vec<Violation> {
    let final_states = history.final_states.iter();
    final_states
        .flat_map(|end| {
            problems(end).into_iter().map(|what| Violation {
                rule: Rule::FinalStates,
                what: format!("server on port {}: {what}", end.port),
                ops: Vec::new(),
            })
        })
        .collect()
}

fn problems(end: &FinalState) -> Vec<String> {
    let mut found = Vec::new();
    if end.keys > 0 {
        found.push(format!("{} keys left", end.keys));
    }
    if end.waiting > 0 {
        found.push(format!("{} waiters left", end.waiting));
    }
    found.extend(end.crash.iter().map(|crash| format!("crashed: {crash}")));
    found
}
