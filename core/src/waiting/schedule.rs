//! Makes many queues due, a batch at a time: what looks at all queues must not stop the server, and comes after what is
//! due anyway.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use super::wakeups::Wakeups;
use super::{Database, WaitTable};
use crate::names::LockName;
use crate::time::Instant;

/// The queues that become due together, in some 20 microseconds.
const BATCH: usize = 64;

impl WaitTable {
    /// Makes all queues of a database due, whose locks may be others now; `None` = of all databases. Each becomes due when
    /// [`WaitTable::next_due`] gets there, after those that are due already.
    pub fn schedule_db(&mut self, db: Option<i32>) {
        self.values_version = self.values_version.wrapping_add(1);
        let all = self.databases.keys().copied();
        self.sweep
            .next
            .extend(all.filter(|other| db.is_none_or(|db| db == *other)));
    }

    /// Makes all queues due in the same way: those that could not be served may be now.
    pub fn schedule_all(&mut self) {
        self.sweep.next.extend(self.databases.keys().copied());
    }

    /// Makes the next queues of the databases due that have to be. Returns whether there were any.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let Some((db, last)) = self.sweep.take() else {
            return false;
        };
        if let Some(database) = self.databases.get_mut(&db) {
            let (looked_at, last) = schedule_in(database, &mut self.wakeups, last, BATCH, now, |_| true);
            self.sweep.current = last.filter(|_| looked_at == BATCH).map(|last| (db, last));
        }
        true
    }

    /// Makes due at `at` those of the next `max` queues after `cursor`, or from the start, for which `is_due`. Returns the
    /// last that it looked at, `None` at the end.
    pub fn schedule_next(
        &mut self,
        cursor: Option<LockName>,
        max: usize,
        at: Instant,
        is_due: impl Fn(&LockName) -> bool,
    ) -> Option<LockName> {
        let mut left = max;
        let (db, mut after) = cursor.map_or((i32::MIN, None), |cursor| (cursor.db, Some(cursor.key)));
        for (db, database) in self.databases.range_mut(db..) {
            let (looked_at, last) = schedule_in(database, &mut self.wakeups, after.take(), left, at, &is_due);
            left = left.saturating_sub(looked_at);
            if left == 0 {
                return last.map(|key| LockName { db: *db, key });
            }
        }
        None
    }
}

/// As [`WaitTable::schedule_next`], in one database. Returns how many queues it has looked at, and the last.
fn schedule_in(
    database: &mut Database,
    wakeups: &mut Wakeups,
    after: Option<Rc<[u8]>>,
    max: usize,
    at: Instant,
    is_due: impl Fn(&LockName) -> bool,
) -> (usize, Option<Rc<[u8]>>) {
    let (mut looked_at, mut last) = (0_usize, after.clone());
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    for (key, entry) in BTreeMap::range_mut(database, (after, Bound::Unbounded)).take(max) {
        // A queue that is due earlier stays so.
        if is_due(&entry.name) && entry.next_wakeup.is_none_or(|wakeup| wakeup > at) {
            wakeups.replace(&entry.name, &mut entry.next_wakeup, Some(at));
        }
        looked_at = looked_at.saturating_add(1);
        last = Some(Rc::clone(key));
    }
    (looked_at, last)
}
