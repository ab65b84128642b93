//! A restarted server has the state that its data describes.

use super::{Rule, Violation};
use crate::history::History;

/// Restarts after which the state differs from the persisted one.
pub fn wrong_restores(history: &History) -> Vec<Violation> {
    let wrong = history.restored.iter();
    let wrong = wrong.filter(|restored| restored.expected != restored.found);
    wrong
        .map(|restored| Violation {
            rule: Rule::Restored,
            what: format!(
                "{}: expected {}, found {}",
                restored.after, restored.expected, restored.found
            ),
            ops: Vec::new(),
        })
        .collect()
}
