//! The queue of what is held back until replicas have it.

use std::collections::VecDeque;

use crate::collections::Shrink;
use crate::effects::Wake;
use crate::names::{LockName, LockNameRef, RequestKey};
use crate::time::Instant;
use crate::transition::Offset;

/// All that is held back, oldest first: so it is acknowledged, and so it is overdue.
#[derive(Clone, Default)]
pub struct HeldBack(pub(super) VecDeque<Held>);

#[derive(Clone)]
pub(super) struct Held {
    pub(super) lock: LockName,
    pub(super) wake: Wake,
    /// The hold was there before this request, and stays whatever becomes of the answer.
    pub(super) repeats: Option<RequestKey>,
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Includes the change. Known at the end of the pass of the server's loop.
    pub(super) offset: Option<Offset>,
}

impl HeldBack {
    /// How many answers are held back.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// When the first is overdue.
    pub(super) fn until(&self) -> Option<Instant> {
        self.0.front().map(|held| held.until)
    }

    pub(super) fn take_first_if(&mut self, is: impl FnOnce(&Held) -> bool) -> Option<Held> {
        self.0.front().filter(|held| is(held))?;
        let first = self.0.pop_front();
        self.0.shrink_if_sparse();
        first
    }

    /// Takes out the answer to an earlier sending of this request.
    pub(super) fn take_former(&mut self, lock: LockNameRef<'_>, wake: &Wake) -> Option<Held> {
        let request = |wake: &Wake| (wake.waiter.owner.clone(), wake.waiter.request_id.clone());
        let is_former = |held: &Held| held.lock.as_ref() == lock && request(&held.wake) == request(wake);
        let place = self.0.iter().position(is_former)?;
        self.0.remove(place)
    }

    /// The changes up to now have this offset. Returns whether there are new ones.
    pub(super) fn mark(&mut self, offset: Offset) -> bool {
        let is_new = self.0.back().is_some_and(|held| held.offset.is_none());
        for held in self.0.iter_mut().rev().take_while(|held| held.offset.is_none()) {
            held.offset = Some(offset);
        }
        is_new
    }
}
