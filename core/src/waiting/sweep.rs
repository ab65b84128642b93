//! Which databases have queues that all have to become due: see [`WaitTable::schedule_db`](super::WaitTable::schedule_db).

use std::collections::BTreeSet;
use std::rc::Rc;

/// The databases whose queues have to become due.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    pub(super) next: BTreeSet<i32>,
    /// The database that is swept, and its last queue that was made due.
    pub(super) current: Option<(i32, Rc<[u8]>)>,
}

impl Sweep {
    pub(super) fn is_pending(&self) -> bool {
        self.current.is_some() || !self.next.is_empty()
    }

    /// Where to go on.
    pub(super) fn take(&mut self) -> Option<(i32, Option<Rc<[u8]>>)> {
        let current = self.current.take().map(|(db, last)| (db, Some(last)));
        current.or_else(|| Some((self.next.pop_first()?, None)))
    }
}
