//! The keys in one bucket, in slots that do not move, so that a lock can store its own.

use crate::inline_bytes::InlineBytes;

/// Slots come in chunks of at most this many: no copy of a large vector ever stalls a command.
const CHUNK: usize = 256;

/// A set of keys, each in a numbered slot.
#[derive(Default)]
pub struct BucketSlab {
    chunks: Vec<Vec<Slot>>,
    /// The first of the free slots, which form a list.
    free: Option<u32>,
    taken: u32,
}

enum Slot {
    Taken(InlineBytes),
    Free { next: Option<u32> },
}

impl BucketSlab {
    pub fn len(&self) -> u32 {
        self.taken
    }

    /// Inserts a key. `None` if all 2^32 slots are taken.
    pub fn insert(&mut self, name: InlineBytes) -> Option<u32> {
        let index = match self.free {
            Some(index) => {
                let slot = self.slot_mut(index)?;
                let Slot::Free { next } = std::mem::replace(slot, Slot::Taken(name)) else {
                    return None;
                };
                self.free = next;
                index
            }
            None => self.push(name)?,
        };
        self.taken = self.taken.saturating_add(1);
        Some(index)
    }

    /// Frees a slot, if this key is in it.
    pub fn remove(&mut self, index: u32, name: &[u8]) {
        let free = self.free;
        let Some(slot) = self.slot_mut(index) else { return };
        if matches!(slot, Slot::Taken(own) if own.as_bytes() == name) {
            *slot = Slot::Free { next: free };
            self.free = Some(index);
            self.taken = self.taken.saturating_sub(1);
        }
    }

    /// Removes the key in the last taken slot, and frees the memory after it.
    pub fn pop(&mut self) -> Option<(u32, InlineBytes)> {
        // Slots after the taken one vanish, so the free list is invalid. The free slots before it are not reused
        // until the bucket is empty, which it soon will be.
        self.free = None;
        while let Some(chunk) = self.chunks.last_mut() {
            while let Some(slot) = chunk.pop() {
                if let Slot::Taken(name) = slot {
                    let within = chunk.len();
                    self.taken = self.taken.saturating_sub(1);
                    let before = self.chunks.len().saturating_sub(1).saturating_mul(CHUNK);
                    return u32::try_from(before.saturating_add(within))
                        .ok()
                        .map(|index| (index, name));
                }
            }
            self.chunks.pop();
        }
        None
    }

    /// Frees the last chunk of keys. Returns whether there was one.
    pub fn drop_chunk(&mut self) -> bool {
        self.chunks.pop().is_some()
    }

    fn push(&mut self, name: InlineBytes) -> Option<u32> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK);
        if full {
            // The first chunk grows with the bucket: most buckets are small.
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let before = self.chunks.len().saturating_sub(1).saturating_mul(CHUNK);
        let chunk = self.chunks.last_mut()?;
        let index = u32::try_from(before.saturating_add(chunk.len())).ok()?;
        chunk.push(Slot::Taken(name));
        Some(index)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        let index = usize::try_from(index).ok()?;
        self.chunks
            .get_mut(index.div_euclid(CHUNK))?
            .get_mut(index.rem_euclid(CHUNK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(i: u32) -> Vec<u8> {
        i.to_string().into_bytes()
    }

    #[test]
    fn slab_reuses_freed_slots_before_new_ones() {
        let mut slots = BucketSlab::default();
        let places: Vec<u32> = (0..600)
            .map(|i| slots.insert(InlineBytes::new(&name(i))).unwrap())
            .collect();
        assert_eq!(places, (0..600).collect::<Vec<u32>>());
        slots.remove(3, &name(3));
        slots.remove(500, &name(500));
        assert_eq!(slots.len(), 598);
        assert_eq!(slots.insert(InlineBytes::new(b"x")), Some(500));
        assert_eq!(slots.insert(InlineBytes::new(b"y")), Some(3));
        assert_eq!(slots.insert(InlineBytes::new(b"z")), Some(600));
    }

    #[test]
    fn slab_removes_only_a_matching_key() {
        let mut slots = BucketSlab::default();
        let index = slots.insert(InlineBytes::new(b"a")).unwrap();
        slots.remove(index, b"b");
        slots.remove(index + 1, b"a");
        assert_eq!(slots.len(), 1);
        slots.remove(index, b"a");
        slots.remove(index, b"a");
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn slab_pop_yields_taken_slots_only() {
        let mut slots = BucketSlab::default();
        for i in 0..600 {
            slots.insert(InlineBytes::new(&name(i)));
        }
        for i in (0..600).step_by(3) {
            slots.remove(i, &name(i));
        }
        let popped: Vec<u32> = std::iter::from_fn(|| slots.pop())
            .inspect(|(slot, popped)| assert_eq!(popped.as_bytes(), name(*slot)))
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(
            popped,
            (0..600).rev().filter(|i| i % 3 != 0).collect::<Vec<u32>>()
        );
        assert_eq!(slots.len(), 0);
    }
}
