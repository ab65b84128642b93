//! No acknowledged write is lost.

use super::{Rule, Violation};
use crate::history::History;

/// Acknowledged elements that are not in the store.
pub fn lost_writes(history: &History) -> Vec<Violation> {
    let Some(stored) = &history.stored else {
        return Vec::new();
    };
    let acknowledged = history.writes.iter().filter(|write| write.acknowledged);
    let lost = acknowledged.filter(|write| !stored.contains(&write.element));
    lost.map(|write| Violation {
        rule: Rule::LostWrites,
        what: format!(
            "element {} was acknowledged at {} with fence {} and is not stored",
            write.element, write.at, write.fence
        ),
        ops: grants_with(history, write.fence),
    })
    .collect()
}

fn grants_with(history: &History, fence: u64) -> Vec<usize> {
    use crate::history::Reply;
    let ops = history.ops.iter().enumerate();
    ops.filter(|(_, op)| matches!(op.reply, Reply::Granted { fence: f, .. } if f == fence))
        .map(|(n, _)| n)
        .collect()
}
