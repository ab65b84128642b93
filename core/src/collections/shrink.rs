//! Collections that give their memory back.
//!
//! Those of the standard library keep the capacity of their largest size for ever. A server runs for months, and a client
//! could fill a table once to occupy the memory of all others for good.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

use smallvec::{Array, SmallVec};

/// A smaller capacity is kept: not worth a reallocation.
const KEPT: usize = 64;

/// A collection is sparse with fewer items than one in so many places. It shrinks to two places for each, so that moving
/// them costs less than the removals before, and growing again does not follow at once.
const SPARSE: usize = 8;

/// The capacity for `len` items, if the current one is far too large.
fn smaller(len: usize, capacity: usize) -> Option<usize> {
    (capacity > KEPT && len < capacity / SPARSE).then(|| len.saturating_mul(2))
}

/// Called after a removal.
pub trait Shrink {
    /// Gives most of the capacity back, if most of it is unused.
    fn shrink_if_sparse(&mut self);
}

impl<T> Shrink for Vec<T> {
    #[inline]
    fn shrink_if_sparse(&mut self) {
        if let Some(capacity) = smaller(self.len(), self.capacity()) {
            self.shrink_to(capacity);
        }
    }
}

impl<T> Shrink for VecDeque<T> {
    #[inline]
    fn shrink_if_sparse(&mut self) {
        if let Some(capacity) = smaller(self.len(), self.capacity()) {
            self.shrink_to(capacity);
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Shrink for HashMap<K, V, S> {
    #[inline]
    fn shrink_if_sparse(&mut self) {
        if let Some(capacity) = smaller(self.len(), self.capacity()) {
            self.shrink_to(capacity);
        }
    }
}

impl<A: Array> Shrink for SmallVec<A> {
    #[inline]
    fn shrink_if_sparse(&mut self) {
        if smaller(self.len(), self.capacity()).is_some() {
            self.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::IdMap;

    const MANY: usize = 10_000;

    /// Removes all items but a few, then those. Returns the capacities after both.
    fn capacities<C: Shrink>(
        full: &mut C,
        mut remove: impl FnMut(&mut C),
        capacity: impl Fn(&C) -> usize,
    ) -> (usize, usize) {
        let mut after = |removals: usize| {
            for _ in 0..removals {
                remove(full);
                full.shrink_if_sparse();
            }
            capacity(full)
        };
        (after(MANY - 100), after(100))
    }

    #[track_caller]
    fn assert_shrunk((few, none): (usize, usize)) {
        assert!((100..=16 * 100).contains(&few), "{few}");
        assert!(none <= 2 * KEPT, "{none}");
    }

    #[test]
    fn collection_that_empties_gives_its_memory_back() {
        let mut vec: Vec<_> = (0..MANY).collect();
        assert_shrunk(capacities(&mut vec, |vec| _ = vec.pop(), Vec::capacity));
        let mut deque: VecDeque<_> = (0..MANY).collect();
        assert_shrunk(capacities(
            &mut deque,
            |deque| _ = deque.pop_front(),
            VecDeque::capacity,
        ));
        let mut small: SmallVec<[usize; 1]> = (0..MANY).collect();
        assert_shrunk(capacities(
            &mut small,
            |small| _ = small.pop(),
            SmallVec::capacity,
        ));
        let mut map: IdMap<usize, usize> = (0..MANY).map(|n| (n, n)).collect();
        let mut next = 0..MANY;
        let remove = |map: &mut IdMap<_, _>| _ = map.remove(&next.next().unwrap());
        assert_shrunk(capacities(&mut map, remove, IdMap::capacity));
    }

    #[test]
    fn collection_that_is_used_keeps_its_memory() {
        let mut vec: Vec<_> = (0..MANY).collect();
        let capacity = vec.capacity();
        vec.truncate(MANY / SPARSE + 1);
        vec.shrink_if_sparse();
        assert_eq!(vec.capacity(), capacity);
        let mut vec = Vec::<u8>::with_capacity(KEPT);
        vec.shrink_if_sparse();
        assert_eq!(vec.capacity(), KEPT);
    }
}
