//! At the end everybody is answered, all locks are free, servers are empty, and none has crashed.

use super::{Rule, Violation};
use crate::history::{FinalState, History};

/// Servers that crashed, or that have keys, waiters or inboxes after the last lease and inbox have ended; and what should
/// have happened by then.
pub fn unclean_final_states(history: &History) -> Vec<Violation> {
    let final_states = history.final_states.iter();
    let unclean = final_states.flat_map(|end| {
        let found = problems(end).into_iter();
        found.map(|what| violation(format!("server on port {}: {what}", end.port)))
    });
    let unfinished = history.unfinished.iter().cloned().map(violation);
    unclean.chain(unfinished).collect()
}

fn violation(what: String) -> Violation {
    Violation {
        rule: Rule::FinalStates,
        what,
        ops: Vec::new(),
    }
}

fn problems(end: &FinalState) -> Vec<String> {
    let mut found = Vec::new();
    if end.keys > 0 {
        found.push(format!("{} keys left", end.keys));
    }
    if end.waiting > 0 {
        found.push(format!("{} waiters left", end.waiting));
    }
    if end.inboxes > 0 {
        found.push(format!("{} inboxes or answers left", end.inboxes));
    }
    found.extend(end.crash.iter().map(|crash| format!("crashed: {crash}")));
    found
}
