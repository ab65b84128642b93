//! For searches through all states: what future replies depend on.

use std::hash::{Hash, Hasher};

use super::Inboxes;

/// Numbers that only grow are hashed as `u64`, and nothing else is that differs between states: a search renames them.
impl Hash for Inboxes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut by_id: Vec<_> = self.by_id.iter().collect();
        by_id.sort_unstable_by_key(|(id, _)| **id);
        (by_id, &self.ended, &self.in_flight, &self.pauses).hash(state);
    }
}
