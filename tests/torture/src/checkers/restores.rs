//! A server that starts on its data has a state that it had before.

use super::{Rule, Violation};
use crate::history::History;

/// Starts after which the server had another state than its log says.
pub fn wrong_restores(history: &History) -> Vec<Violation> {
    let wrong = history
        .restored
        .iter()
        .filter(|restored| restored.expected != restored.found);
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
