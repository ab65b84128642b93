//! Grants that are to be rolled back, because their clients are gone.

use super::Inboxes;
use super::in_flight::Undelivered;
use crate::collections::Shrink;

impl Inboxes {
    /// The number of grants to be rolled back.
    pub fn undelivered(&self) -> usize {
        self.in_flight.undelivered.len()
    }

    /// The next grant to be rolled back, if [`Self::claim`] says so.
    pub fn next_undelivered(&mut self) -> Option<Undelivered> {
        let next = self.in_flight.undelivered.pop_front();
        self.in_flight.undelivered.shrink_if_sparse();
        next
    }

    /// It cannot be rolled back now.
    pub fn put_back(&mut self, grant: Undelivered) {
        self.in_flight.undelivered.push_back(grant);
    }

    /// Whether no reply has carried this grant meanwhile. From now on none does.
    pub fn claim(&mut self, grant: &Undelivered) -> bool {
        self.in_flight.claim_grant(grant)
    }
}
