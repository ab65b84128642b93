//! Which locks there are, by the time at which somebody has to look at them.
//!
//! A lock has no Redis TTL: when its owner vanishes, the module must remove it. Every lock under a key
//! stands in the wheel of its database, in the bucket in which its first lease ends. An extended lock
//! stays where it is, and is put on when its bucket is due.
//!
//! The registry holds names, never pointers: FLUSHALL, DEBUG RELOAD and RENAME free or move values
//! without a word. A name may therefore be wrong; a lock that stands nowhere is a stray and is looked for.

mod buckets;
mod handle;
mod name;
mod slab;

use std::ffi::c_int;

use buckets::Buckets;
pub use handle::ExpiryHandle;
pub use name::Name;

use crate::Instant;

/// One wheel a database.
#[derive(Default)]
pub struct ExpiryIndex {
    databases: Vec<Buckets>,
    /// Those of databases that were emptied. Millions of names are not freed at once: no client waits for that.
    flushed: Vec<Buckets>,
}

/// A lock that somebody has to look at.
pub struct DueLock {
    pub db: c_int,
    pub name: Name,
    pub place: ExpiryHandle,
}

impl ExpiryIndex {
    pub const fn new() -> Self {
        Self {
            databases: Vec::new(),
            flushed: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of locks.
    pub fn len(&self) -> u64 {
        self.databases.iter().map(Buckets::len).sum()
    }

    /// Has the lock looked at when `at` has passed; where it stands from now on.
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

    /// Forgets the lock, if it does stand there.
    pub fn remove(&mut self, db: c_int, name: &[u8], place: ExpiryHandle) {
        if let Some(buckets) = self.database_mut(db) {
            buckets.remove(name, place);
        }
    }

    /// Takes out a lock whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<DueLock> {
        self.databases.iter_mut().zip(0..).find_map(|(buckets, db)| {
            buckets
                .take_due(now)
                .map(|(name, place)| DueLock { db, name, place })
        })
    }

    /// Whether [`ExpiryIndex::take_due`] has something.
    pub fn is_due(&self, now: Instant) -> bool {
        self.databases.iter().any(|buckets| buckets.is_due(now))
    }

    /// The database is emptied; -1 = all are.
    pub fn flush(&mut self, db: c_int) {
        if db < 0 {
            self.flushed.append(&mut self.databases);
        } else if let Some(buckets) = self.database_mut(db) {
            let flushed = std::mem::take(buckets);
            self.flushed.push(flushed);
        }
    }

    /// Frees a few names of emptied databases; false when there are none.
    pub fn free_chunk(&mut self) -> bool {
        while let Some(buckets) = self.flushed.last_mut() {
            if buckets.drop_chunk() {
                return true;
            }
            self.flushed.pop();
        }
        false
    }

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
    fn emptied_databases_are_freed_a_few_names_at_a_time() {
        let mut registry = ExpiryIndex::new();
        for db in 0..3 {
            for n in 0..1000_u32 {
                let at = Instant::default().after_ms(u64::from(n % 2) * 1000);
                registry.insert(db, &n.to_be_bytes(), at);
            }
        }
        registry.flush(1);
        assert_eq!(registry.len(), 2000);
        registry.flush(-1);
        assert_eq!(registry.len(), 0);
        let kept = registry.insert(0, b"later", Instant::default());
        // Of each database 500 names in each of two buckets.
        let slices = std::iter::from_fn(|| registry.free_chunk().then_some(())).count();
        assert_eq!(slices, 3 * 2 * 2);
        assert_eq!(registry.len(), 1);
        registry.remove(0, b"later", kept);
        assert_eq!(registry.len(), 0);
    }
}
