//! A set that allocates nothing as long as it has at most one element, as nearly all do.

use std::ops::Deref;

use smallvec::SmallVec;

use super::Shrink;

/// In ascending order.
#[derive(Clone, Debug)]
pub(crate) struct SmallSet<T>(SmallVec<[T; 1]>);

impl<T: Ord> SmallSet<T> {
    pub fn insert(&mut self, item: T) {
        if let Err(at) = self.0.binary_search(&item) {
            self.0.insert(at, item);
        }
    }

    pub fn remove(&mut self, item: &T) {
        if let Ok(at) = self.0.binary_search(item) {
            self.0.remove(at);
            self.0.shrink_if_sparse();
        }
    }
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> Deref for SmallSet<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every sequence of four changes of three items.
    #[test]
    fn small_set_equals_btree_set() {
        for changes in 0..6_u32.pow(4) {
            let (mut small, mut set) = (SmallSet::default(), BTreeSet::new());
            for place in 0..4 {
                let change = changes / 6_u32.pow(place) % 6;
                let item = change % 3;
                if change < 3 {
                    small.insert(item);
                    set.insert(item);
                } else {
                    small.remove(&item);
                    set.remove(&item);
                }
                assert!(small.iter().eq(&set), "{changes}");
            }
        }
    }
}
