//! A map that allocates nothing as long as it has at most one entry, as nearly all do.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) enum SmallMap<K, V> {
    #[default]
    Empty,
    One(K, V),
    Many(BTreeMap<K, V>),
}

/// A set of the same kind.
pub(crate) type SmallSet<K> = SmallMap<K, ()>;

impl<K: Ord, V> SmallMap<K, V> {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(..) => 1,
            Self::Many(map) => map.len(),
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::One(own, value) if own == key => Some(value),
            Self::Empty | Self::One(..) => None,
            Self::Many(map) => map.get(key),
        }
    }

    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// In ascending order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, value) => (Some((key, value)), None),
            Self::Many(map) => (None, Some(map)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// In ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn first(&self) -> Option<&K> {
        self.keys().next()
    }

    /// Inserts an entry, or replaces its value.
    pub fn insert(&mut self, key: K, value: V) {
        match self {
            Self::Many(map) => {
                map.insert(key, value);
            }
            Self::One(own, _) if *own != key => {
                if let Self::One(own, own_value) = std::mem::replace(self, Self::Empty) {
                    *self = Self::Many(BTreeMap::from([(own, own_value), (key, value)]));
                }
            }
            Self::Empty | Self::One(..) => *self = Self::One(key, value),
        }
    }

    pub fn remove(&mut self, key: &K) {
        match self {
            Self::One(own, _) if own == key => *self = Self::Empty,
            Self::Empty | Self::One(..) => {}
            Self::Many(map) => {
                map.remove(key);
            }
        }
    }
}

impl<K: Ord, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<(K, V)>, std::collections::btree_map::IntoIter<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::Empty => (None, BTreeMap::new()),
            Self::One(key, value) => (Some((key, value)), BTreeMap::new()),
            Self::Many(map) => (None, map),
        };
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sequence of four changes of three keys.
    #[test]
    fn small_map_equals_btree_map() {
        for changes in 0..6_u32.pow(4) {
            let (mut small, mut map) = (SmallMap::default(), BTreeMap::new());
            for place in 0..4 {
                let change = changes / 6_u32.pow(place) % 6;
                let key = change % 3;
                if change < 3 {
                    small.insert(key, place);
                    map.insert(key, place);
                } else {
                    small.remove(&key);
                    map.remove(&key);
                }
                assert!(small.iter().eq(&map) && small.first() == map.keys().next());
                assert!((0..3).all(|key| small.get(&key) == map.get(&key)));
                assert_eq!((small.len(), small.is_empty()), (map.len(), map.is_empty()));
            }
            assert!(small.into_iter().eq(map), "{changes}");
        }
    }
}
