//! The expiry index: all locks of the server, by the time at which their first lease expires.
//!
//! A lock has no Redis TTL, so the module itself must remove expired holders. Each database has buckets of a
//! quarter of a second, and each lock is in the bucket of its first lease end. An extended lock stays in its
//! bucket until that is due, and is then inserted again.
//!
//! The index holds keys, never pointers: FLUSHALL and DEBUG RELOAD free values without notice. So a key may be stale. A
//! lock that was renamed is missing until it is opened for a change.

mod buckets;
mod handle;
mod longest_hold;
mod slab;

use std::ffi::c_int;

use buckets::Buckets;
pub use handle::ExpiryHandle;
pub use longest_hold::LongestHold;

use crate::cluster::slots::{SlotSet, slot_of};
use crate::collections::{InlineBytes, Shrink};
use crate::time::Instant;

/// The locks of all databases.
#[derive(Clone, Default)]
pub struct ExpiryIndex {
    databases: Vec<Buckets>,
    /// Flushed databases. Millions of keys are freed in slices, so that no client waits for that.
    flushed: Vec<Buckets>,
}

/// A lock whose first lease may have expired.
pub struct DueLock {
    /// The database.
    pub db: c_int,
    /// The key.
    pub name: InlineBytes,
    /// Where it was in the index.
    pub handle: ExpiryHandle,
}

impl ExpiryIndex {
    /// Whether there are no locks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of locks.
    pub fn len(&self) -> u64 {
        self.databases.iter().map(Buckets::len).sum()
    }

    /// Inserts a lock that is due at `at`. Returns its position.
    pub fn insert(&mut self, db: c_int, name: &[u8], at: Instant) -> ExpiryHandle {
        let index = usize::try_from(db).unwrap_or(0);
        if index >= self.databases.len() {
            self.databases
                .resize_with(index.saturating_add(1), Buckets::default);
        }
        self.databases
            .get_mut(index)
            .map_or(ExpiryHandle::NONE, |buckets| buckets.insert(name, at))
    }

    /// Removes a lock, if it is in that position.
    pub fn remove(&mut self, db: c_int, name: &[u8], handle: ExpiryHandle) {
        if let Some(buckets) = self.database_mut(db) {
            buckets.remove(name, handle);
        }
    }

    /// Removes and returns a lock that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<DueLock> {
        self.databases.iter_mut().zip(0..).find_map(|(buckets, db)| {
            buckets
                .take_due(now)
                .map(|(name, handle)| DueLock { db, name, handle })
        })
    }

    /// Makes the locks that are due at about `at` due at once: leases that lasted until then may be shorter now.
    pub fn expire_early(&mut self, at: Instant) {
        for buckets in &mut self.databases {
            buckets.expire_early(at);
        }
    }

    /// Whether [`ExpiryIndex::take_due`] has something.
    pub fn is_due(&self, now: Instant) -> bool {
        self.databases.iter().any(|buckets| buckets.is_due(now))
    }

    /// When it has something next.
    pub fn next_due(&self) -> Option<Instant> {
        self.databases.iter().filter_map(Buckets::next_due).min()
    }

    /// Removes all locks of a database; -1 = of all databases.
    pub fn flush(&mut self, db: c_int) {
        if db < 0 {
            self.flushed.append(&mut self.databases);
        } else if let Some(buckets) = self.database_mut(db) {
            let flushed = std::mem::take(buckets);
            self.flushed.push(flushed);
        }
    }

    /// Removes all locks of these cluster slots. Looks at each lock.
    pub fn remove_slots(&mut self, slots: &SlotSet) {
        for buckets in &mut self.databases {
            buckets.remove_if(|name| slots.contains(slot_of(name)));
        }
    }

    /// Frees some keys of flushed databases. Returns whether there were any.
    pub fn free_chunk(&mut self) -> bool {
        while let Some(buckets) = self.flushed.last_mut() {
            if buckets.drop_chunk() {
                return true;
            }
            self.flushed.pop();
        }
        self.flushed.shrink_if_sparse();
        false
    }

    /// Swaps two databases.
    pub fn swap(&mut self, first: c_int, second: c_int) {
        let (Ok(first), Ok(second)) = (usize::try_from(first), usize::try_from(second)) else {
            return;
        };
        let needed = first.max(second).saturating_add(1);
        if self.databases.len() < needed {
            self.databases.resize_with(needed, Buckets::default);
        }
        self.databases.swap(first, second);
    }

    fn database_mut(&mut self, db: c_int) -> Option<&mut Buckets> {
        self.databases.get_mut(usize::try_from(db).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_databases_are_freed_in_chunks() {
        let mut index = ExpiryIndex::default();
        for db in 0..3 {
            for n in 0..2000_u32 {
                let at = Instant::default().after_ms(u64::from(n % 2) * 1000);
                index.insert(db, &n.to_be_bytes(), at);
            }
        }
        index.flush(0);
        assert_eq!(index.len(), 4000, "the first one only");
        index.flush(-1);
        assert_eq!(index.len(), 0);
        let kept = index.insert(0, b"later", Instant::default());
        // Of each database 1000 names of 8 bytes in each of two buckets.
        let slices = std::iter::from_fn(|| index.free_chunk().then_some(())).count();
        assert_eq!(slices, 3 * 2 * 2);
        assert_eq!(index.len(), 1);
        index.remove(0, b"later", kept);
        assert_eq!(index.len(), 0);
    }
}
