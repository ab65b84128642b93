//! In which queues each owner waits, and how many locks it holds that others wait for.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::collections::SmallSet;
use crate::names::{LockName, Owner};

#[derive(Clone, Debug, Default)]
pub(super) struct OwnerIndex(BTreeMap<Owner, OwnerEntry>);

#[derive(Clone, Debug, Default)]
pub(super) struct OwnerEntry {
    pub(super) waits: SmallSet<LockName>,
    holds: usize,
}

impl OwnerIndex {
    pub(super) fn contains(&self, owner: &[u8]) -> bool {
        self.0.contains_key(owner)
    }

    /// Whether this owner could be part of a cycle: it holds what others wait for, or waits elsewhere too.
    pub(super) fn may_close_cycle(&self, owner: &[u8]) -> bool {
        self.0
            .get(owner)
            .is_some_and(|entry| entry.holds > 0 || entry.waits.len() > 1)
    }

    /// The entry of an owner that waits somewhere.
    pub(super) fn waiting(&self, owner: &[u8]) -> Option<&OwnerEntry> {
        self.0.get(owner).filter(|entry| !entry.waits.is_empty())
    }

    pub(super) fn add_wait(&mut self, owner: Owner, name: &LockName) {
        let entry = self.0.entry(owner).or_default();
        entry.waits.insert(name.clone());
    }

    pub(super) fn add_hold(&mut self, owner: &Owner) {
        let entry = self.0.entry(Rc::clone(owner)).or_default();
        entry.holds = entry.holds.saturating_add(1);
    }

    pub(super) fn remove_wait(&mut self, owner: &[u8], name: &LockName) {
        self.update_or_remove(owner, |entry| entry.waits.remove(name));
    }

    pub(super) fn remove_hold(&mut self, owner: &[u8]) {
        self.update_or_remove(owner, |entry| entry.holds = entry.holds.saturating_sub(1));
    }

    fn update_or_remove(&mut self, owner: &[u8], update: impl FnOnce(&mut OwnerEntry)) {
        if let Some(entry) = self.0.get_mut(owner) {
            update(entry);
            if entry.waits.is_empty() && entry.holds == 0 {
                self.0.remove(owner);
            }
        }
    }
}
