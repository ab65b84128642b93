//! The locks of one database, in buckets by time.

use std::collections::BTreeMap;

use super::handle::{Bucket, ExpiryHandle};
use super::slab::{NameSlab, SlotSize};
use crate::collections::InlineBytes;
use crate::time::Instant;

#[derive(Clone, Default)]
pub struct Buckets {
    /// A bucket has a slab for each size of names in it.
    slabs: BTreeMap<(Bucket, SlotSize), NameSlab>,
    /// The bucket that was last inserted into. Its slabs stay even if they are empty: leases of equal length reuse them.
    latest: Option<Bucket>,
    /// Slabs that are due before their time. Names that leave their locks meanwhile stay in them.
    early: Vec<(Bucket, NameSlab)>,
    len: u64,
}

impl Buckets {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn insert(&mut self, name: &[u8], at: Instant) -> ExpiryHandle {
        let bucket = Bucket::of(at);
        if let Some(former) = self.latest.replace(bucket).filter(|former| *former != bucket) {
            self.remove_empty_slabs(former);
        }
        let size = SlotSize::of(name);
        let slab = self
            .slabs
            .entry((bucket, size))
            .or_insert_with(|| NameSlab::new(size));
        match slab.insert(name) {
            Some(slot) => {
                self.len = self.len.saturating_add(1);
                ExpiryHandle { bucket, slot }
            }
            None => ExpiryHandle::NONE,
        }
    }

    pub fn remove(&mut self, name: &[u8], handle: ExpiryHandle) {
        let place = (handle.bucket, SlotSize::of(name));
        let Some(slab) = self.slabs.get_mut(&place) else {
            return;
        };
        if slab.remove(handle.slot, name) {
            self.len = self.len.saturating_sub(1);
        }
        if slab.len() == 0 && self.latest != Some(handle.bucket) {
            self.slabs.remove(&place);
        }
    }

    /// Removes the locks of these names.
    pub fn remove_if(&mut self, is_gone: impl Fn(&[u8]) -> bool) {
        let early = self.early.iter_mut().map(|(_, slab)| slab);
        for slab in self.slabs.values_mut().chain(early) {
            let gone = slab.names().filter(|(_, name)| is_gone(name));
            let gone: Vec<(u32, InlineBytes)> =
                gone.map(|(slot, name)| (slot, InlineBytes::new(name))).collect();
            for (slot, name) in gone {
                slab.remove(slot, name.as_bytes());
                self.len = self.len.saturating_sub(1);
            }
        }
        let latest = self.latest;
        self.slabs
            .retain(|(bucket, _), slab| slab.len() > 0 || latest == Some(*bucket));
    }

    /// Frees a chunk of names of a flushed database. Returns whether there was one.
    pub fn drop_chunk(&mut self) -> bool {
        while let Some((_, slab)) = self.early.last_mut() {
            if slab.drop_chunk() {
                return true;
            }
            self.early.pop();
        }
        while let Some(mut first) = self.slabs.first_entry() {
            if first.get_mut().drop_chunk() {
                return true;
            }
            first.remove();
        }
        false
    }

    fn remove_empty_slabs(&mut self, bucket: Bucket) {
        let slabs = self
            .slabs
            .range((bucket, SlotSize::MIN)..=(bucket, SlotSize::MAX));
        let empty = slabs.filter(|(_, slab)| slab.len() == 0).map(|(place, _)| *place);
        for place in empty.collect::<Vec<_>>() {
            self.slabs.remove(&place);
        }
    }

    /// Makes the locks of the bucket of `at` due at once.
    pub fn expire_early(&mut self, at: Instant) {
        let bucket = Bucket::of(at);
        let slabs = self
            .slabs
            .range((bucket, SlotSize::MIN)..=(bucket, SlotSize::MAX));
        for place in slabs.map(|(place, _)| *place).collect::<Vec<_>>() {
            self.early
                .extend(self.slabs.remove(&place).map(|slab| (bucket, slab)));
        }
    }

    fn take_early(&mut self) -> Option<(InlineBytes, ExpiryHandle)> {
        loop {
            let (bucket, slab) = self.early.last_mut()?;
            if let Some((slot, name)) = slab.pop() {
                self.len = self.len.saturating_sub(1);
                return Some((
                    name,
                    ExpiryHandle {
                        bucket: *bucket,
                        slot,
                    },
                ));
            }
            self.early.pop();
        }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        !self.early.is_empty()
            || self
                .slabs
                .first_key_value()
                .is_some_and(|((bucket, _), _)| bucket.has_passed(now))
    }

    /// When the first bucket is due.
    pub fn next_due(&self) -> Option<Instant> {
        if !self.early.is_empty() {
            return Some(Instant::DISTANT_PAST);
        }
        self.slabs.first_key_value().map(|((bucket, _), _)| bucket.end())
    }

    pub fn take_due(&mut self, now: Instant) -> Option<(InlineBytes, ExpiryHandle)> {
        if let Some(early) = self.take_early() {
            return Some(early);
        }
        loop {
            let mut first = self
                .slabs
                .first_entry()
                .filter(|first| first.key().0.has_passed(now))?;
            let bucket = first.key().0;
            let popped = first.get_mut().pop();
            if first.get().len() == 0 {
                first.remove();
            }
            if let Some((slot, name)) = popped {
                self.len = self.len.saturating_sub(1);
                return Some((name, ExpiryHandle { bucket, slot }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::default().after_ms(ms)
    }

    #[test]
    fn lock_is_due_within_a_quarter_second_after_its_time() {
        let mut buckets = Buckets::default();
        buckets.insert(b"a", at(1_000));
        assert!(buckets.take_due(at(1_000)).is_none());
        assert!(buckets.take_due(at(1_250)).is_some());
        assert!(!buckets.is_due(at(9_999)));
        assert_eq!(buckets.len(), 0);
    }

    #[test]
    fn locks_of_one_time_can_be_due_before_it() {
        let mut buckets = Buckets::default();
        let name = [b'n'; 100];
        let (short, long) = (
            buckets.insert(b"short", at(9_000)),
            buckets.insert(&name, at(9_100)),
        );
        buckets.insert(b"later", at(10_000));
        buckets.expire_early(at(9_000));
        assert!(buckets.is_due(at(0)));
        // One of them is found to be due at that time indeed.
        buckets.insert(b"short", at(9_000));
        let mut due = [
            buckets.take_due(at(0)).unwrap().1,
            buckets.take_due(at(0)).unwrap().1,
        ];
        due.sort_by_key(|handle| *handle == long);
        assert_eq!(due, [short, long]);
        assert!(buckets.take_due(at(0)).is_none() && !buckets.is_due(at(0)));
        assert_eq!(buckets.len(), 2);
        assert!(buckets.take_due(at(9_250)).is_some());
    }

    #[test]
    fn locks_are_removed_by_name_in_all_slabs() {
        let mut buckets = Buckets::default();
        let long = [b'x'; 100];
        for (name, ms) in [
            (&b"x1"[..], 0),
            (b"y1", 0),
            (&long, 0),
            (b"x2", 9_000),
            (b"y2", 20_000),
        ] {
            buckets.insert(name, at(ms));
        }
        buckets.expire_early(at(9_000));
        buckets.remove_if(|name| name.starts_with(b"x"));
        assert_eq!((buckets.slabs.len(), buckets.len()), (2, 2));
        let due = std::iter::from_fn(|| buckets.take_due(at(30_000)));
        let due: Vec<Vec<u8>> = due.map(|(name, _)| name.as_bytes().to_vec()).collect();
        assert_eq!(due, [b"y1", b"y2"]);
    }

    #[test]
    fn due_locks_come_in_bucket_order_without_removed_ones() {
        let mut buckets = Buckets::default();
        let early = buckets.insert(b"early", at(500));
        buckets.insert(b"late", at(900));
        buckets.insert(b"earlier", at(100));
        buckets.remove(b"early", early);
        let due: Vec<Vec<u8>> = std::iter::from_fn(|| buckets.take_due(at(2_000)))
            .map(|(name, _)| name.as_bytes().to_vec())
            .collect();
        assert_eq!(due, [b"earlier".to_vec(), b"late".to_vec()]);
    }

    #[test]
    fn empty_bucket_is_removed_unless_it_is_the_latest() {
        let mut buckets = Buckets::default();
        for ms in (0..10_000).step_by(250) {
            let handle = buckets.insert(b"a", at(ms));
            buckets.remove(b"a", handle);
        }
        assert_eq!((buckets.slabs.len(), buckets.len()), (1, 0));
        assert!(buckets.take_due(at(60_000)).is_none());
        assert!(buckets.slabs.is_empty());
    }

    #[test]
    fn empty_slabs_of_a_bucket_go_with_it() {
        let mut buckets = Buckets::default();
        let long = [b'n'; 100];
        for name in [b"short", &long[..]] {
            let handle = buckets.insert(name, at(0));
            buckets.remove(name, handle);
        }
        let kept = buckets.insert(&long, at(100));
        assert_eq!(buckets.slabs.len(), 2);
        buckets.insert(b"short", at(1_000));
        assert_eq!((buckets.slabs.len(), buckets.len()), (2, 2));
        buckets.remove(&long, kept);
        assert_eq!((buckets.slabs.len(), buckets.len()), (1, 1));
    }

    #[test]
    fn lock_with_out_of_range_time_is_indexed() {
        let mut buckets = Buckets::default();
        buckets.insert(b"past", Instant::from_micros(-5));
        let far = buckets.insert(b"far", Instant::from_micros(i64::MAX));
        assert!(far.is_indexed());
        assert!(buckets.take_due(at(250)).is_some());
        assert!(!buckets.is_due(at(1_000_000_000)));
    }
}
