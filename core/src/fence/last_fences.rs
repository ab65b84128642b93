//! The last fence of every lock name, as far as a quorum needs it.
//!
//! The servers of a quorum are to give a lock the same fence. With one counter for all locks they would not: other
//! locks move it on one server and not yet on another. One number per name would grow forever, so names share buckets.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Fence;
use crate::names::LockNameRef;

/// A power of two.
const BUCKETS: usize = 1024;

/// In memory only: 8 kB.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LastFences {
    last: Vec<Fence>,
    /// No bucket is below it.
    floor: Fence,
}

impl LastFences {
    /// Of a server that has issued no fence above `floor`.
    pub fn above(floor: Fence) -> Self {
        Self {
            last: vec![0; BUCKETS],
            floor,
        }
    }

    /// No fence of this name is larger.
    pub fn last(&self, name: LockNameRef<'_>) -> Fence {
        let last = self.last.get(bucket_of(name)).copied().unwrap_or_default();
        last.max(self.floor)
    }

    pub fn raise(&mut self, name: LockNameRef<'_>, fence: Fence) {
        if let Some(last) = self.last.get_mut(bucket_of(name)) {
            *last = fence.max(*last);
        }
    }

    pub fn raise_all(&mut self, fence: Fence) {
        self.floor = self.floor.max(fence);
    }
}

fn bucket_of(name: LockNameRef<'_>) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as usize & (BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_keeps_its_names_apart_from_others() {
        let (a, b) = (LockNameRef::new(0, b"a"), LockNameRef::new(0, b"b"));
        let mut last_fences = LastFences::above(5);
        last_fences.raise(a, 9);
        last_fences.raise(a, 7);
        assert_eq!((last_fences.last(a), last_fences.last(b)), (9, 5));
        assert_eq!(last_fences.last(LockNameRef::new(1, b"a")), 5, "another database");
        last_fences.raise_all(8);
        assert_eq!((last_fences.last(a), last_fences.last(b)), (9, 8));
    }

    #[test]
    fn names_are_spread_over_most_buckets() {
        let names: Vec<String> = (0..4 * BUCKETS).map(|n| format!("lock:{n}")).collect();
        let mut used: Vec<usize> = names
            .iter()
            .map(|name| bucket_of(LockNameRef::new(0, name.as_bytes())))
            .collect();
        used.sort_unstable();
        used.dedup();
        assert!(used.len() > BUCKETS * 9 / 10, "{}", used.len());
    }
}
