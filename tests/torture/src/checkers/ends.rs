//! In the end nothing is left, and no server has crashed.

use super::{Rule, Violation};
use crate::history::{End, History};

/// Servers that crashed, or that keep keys or waiters after the last request and the last lease.
pub fn unclean_ends(history: &History) -> Vec<Violation> {
    let ends = history.ends.iter();
    ends.flat_map(|end| {
        complaints(end).into_iter().map(|what| Violation {
            rule: Rule::Ends,
            what: format!("the server on port {}: {what}", end.port),
            ops: Vec::new(),
        })
    })
    .collect()
}

fn complaints(end: &End) -> Vec<String> {
    let mut found = Vec::new();
    if end.keys > 0 {
        found.push(format!("{} keys are left", end.keys));
    }
    if end.waiting > 0 {
        found.push(format!("{} requests still wait", end.waiting));
    }
    found.extend(end.crash.iter().map(|crash| format!("crashed: {crash}")));
    found
}
