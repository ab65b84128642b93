//! When each queue is due.

use std::collections::BTreeSet;

use crate::names::LockName;
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Wakeups(BTreeSet<(Instant, LockName)>);

impl Wakeups {
    pub(super) fn first(&self) -> Option<(Instant, &LockName)> {
        self.0.first().map(|(at, name)| (*at, name))
    }

    /// Moves the wakeup of a queue from `current` to `next`.
    pub(super) fn replace(&mut self, name: &LockName, current: &mut Option<Instant>, next: Option<Instant>) {
        if *current == next {
            return;
        }
        if let Some(at) = *current {
            self.0.remove(&(at, name.clone()));
        }
        if let Some(at) = next {
            self.0.insert((at, name.clone()));
        }
        *current = next;
    }
}
