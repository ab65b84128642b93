//! Names of about the same length, in numbered slots that do not move, so that a lock can store its own.
//!
//! A slot has no more bytes than its name needs, rounded up to a multiple of four: the index of a million locks is
//! mostly names.

use crate::collections::{InlineBytes, Shrink};

/// Slots come in chunks of at most this many bytes, unless one slot needs more: no copy of a large vector ever stalls a
/// command.
const CHUNK_BYTES: usize = 4096;

/// A slot has a multiple of this many bytes.
const SLOT_UNIT: usize = 4;

/// The first byte of a slot. Of a taken one it is the number of bytes after the name.
const FREE: u8 = u8::MAX;

/// The bytes of one slot, the same for all slots of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotSize(u32);

/// A set of names, each in a numbered slot.
#[derive(Clone)]
pub struct NameSlab {
    chunks: Vec<Vec<u8>>,
    slot_bytes: usize,
    slots_per_chunk: usize,
    /// The first of the free slots, which form a list.
    free: Option<u32>,
    taken: u32,
}

impl SlotSize {
    pub const MIN: Self = Self(0);
    pub const MAX: Self = Self(u32::MAX);

    /// One byte more than the name, and enough for a free slot.
    pub fn of(name: &[u8]) -> Self {
        let units = name.len().div_euclid(SLOT_UNIT).saturating_add(1);
        Self(u32::try_from(units.max(2)).unwrap_or(u32::MAX))
    }

    fn bytes(self) -> usize {
        usize::try_from(self.0)
            .unwrap_or(usize::MAX)
            .saturating_mul(SLOT_UNIT)
    }
}

impl NameSlab {
    pub fn new(size: SlotSize) -> Self {
        let slot_bytes = size.bytes();
        Self {
            chunks: Vec::new(),
            slot_bytes,
            slots_per_chunk: CHUNK_BYTES.checked_div(slot_bytes).unwrap_or(1).max(1),
            free: None,
            taken: 0,
        }
    }

    pub fn len(&self) -> u32 {
        self.taken
    }

    /// Inserts a name of this slot size. `None` if all 2^32 slots are taken.
    pub fn insert(&mut self, name: &[u8]) -> Option<u32> {
        let index = match self.free {
            Some(index) => {
                let slot = self.slot_mut(index)?;
                let next = next_free(slot);
                write(slot, name);
                self.free = next;
                index
            }
            None => self.push(name)?,
        };
        self.taken = self.taken.saturating_add(1);
        Some(index)
    }

    /// Frees a slot, if this name is in it. Returns whether it was.
    pub fn remove(&mut self, index: u32, name: &[u8]) -> bool {
        let next = self.free;
        let Some(slot) = self.slot_mut(index).filter(|slot| name_in(slot) == Some(name)) else {
            return false;
        };
        write_free(slot, next);
        self.free = Some(index);
        self.taken = self.taken.saturating_sub(1);
        if self.taken == 0 && self.chunks.len() > 1 {
            self.clear();
        }
        true
    }

    /// Frees all chunks but one, which a slab of few names uses again and again.
    fn clear(&mut self) {
        self.free = None;
        self.chunks.truncate(1);
        self.chunks.shrink_if_sparse();
        if let Some(chunk) = self.chunks.first_mut() {
            chunk.clear();
        }
    }

    /// Removes the name in the last taken slot, and frees the memory after it.
    pub fn pop(&mut self) -> Option<(u32, InlineBytes)> {
        // Slots after the taken one vanish, so the free list is invalid. The free slots before it are not reused
        // until the slab is empty, which it soon will be.
        self.free = None;
        while let Some(chunk) = self.chunks.last_mut() {
            while let Some(start) = chunk.len().checked_sub(self.slot_bytes) {
                let name = chunk.get(start..).and_then(name_in).map(InlineBytes::new);
                chunk.truncate(start);
                if let Some(name) = name {
                    self.taken = self.taken.saturating_sub(1);
                    return self.index_in_last_chunk(start).map(|index| (index, name));
                }
            }
            self.chunks.pop();
        }
        None
    }

    /// The names, each with the number of its slot.
    pub fn names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let slots = self.chunks.iter().enumerate().flat_map(|(chunk, bytes)| {
            let first = chunk.saturating_mul(self.slots_per_chunk);
            let slots = bytes.chunks_exact(self.slot_bytes).enumerate();
            slots.map(move |(slot, bytes)| (first.saturating_add(slot), bytes))
        });
        slots.filter_map(|(index, bytes)| Some((u32::try_from(index).ok()?, name_in(bytes)?)))
    }

    /// Frees the last chunk of names. Returns whether there was one.
    pub fn drop_chunk(&mut self) -> bool {
        self.chunks.pop().is_some()
    }

    fn push(&mut self, name: &[u8]) -> Option<u32> {
        let full_bytes = self.slots_per_chunk.saturating_mul(self.slot_bytes);
        if self.chunks.last().is_none_or(|chunk| chunk.len() >= full_bytes) {
            self.chunks.push(Vec::new());
        }
        let chunk = self.chunks.last_mut()?;
        let start = chunk.len();
        if start == chunk.capacity() {
            // Doubled, but not beyond the full size: most slabs are small.
            let twice = start.max(self.slot_bytes).saturating_mul(2);
            chunk.reserve_exact(twice.min(full_bytes).saturating_sub(start));
        }
        chunk.resize(start.saturating_add(self.slot_bytes), 0);
        write(chunk.get_mut(start..)?, name);
        self.index_in_last_chunk(start)
    }

    /// The number of the slot that starts at this byte.
    fn index_in_last_chunk(&self, start: usize) -> Option<u32> {
        let before = self
            .chunks
            .len()
            .checked_sub(1)?
            .checked_mul(self.slots_per_chunk)?;
        u32::try_from(before.checked_add(start.checked_div(self.slot_bytes)?)?).ok()
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut [u8]> {
        let index = usize::try_from(index).ok()?;
        let chunk = self.chunks.get_mut(index.checked_div(self.slots_per_chunk)?)?;
        let start = index
            .checked_rem(self.slots_per_chunk)?
            .checked_mul(self.slot_bytes)?;
        chunk.get_mut(start..)?.get_mut(..self.slot_bytes)
    }
}

/// The name in a slot, if it is taken.
fn name_in(slot: &[u8]) -> Option<&[u8]> {
    let (&unused, name) = slot.split_first()?;
    name.get(..name.len().checked_sub(usize::from(unused))?)
        .filter(|_| unused != FREE)
}

fn write(slot: &mut [u8], name: &[u8]) {
    let Some((unused, bytes)) = slot.split_first_mut() else {
        return;
    };
    *unused = bytes.len().saturating_sub(name.len()) as u8;
    if let Some(bytes) = bytes.get_mut(..name.len()) {
        bytes.copy_from_slice(name);
    }
}

/// A free slot has the number of the next one in its last four bytes.
fn next_free(slot: &[u8]) -> Option<u32> {
    let next = slot.last_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    next.filter(|next| *next != u32::MAX)
}

fn write_free(slot: &mut [u8], next: Option<u32>) {
    if let Some(bytes) = slot.last_chunk_mut() {
        *bytes = next.unwrap_or(u32::MAX).to_ne_bytes();
    }
    if let Some(first) = slot.first_mut() {
        *first = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three bytes: a slot of eight, and 512 of them in a chunk.
    fn name(i: u32) -> Vec<u8> {
        format!("{i:03}").into_bytes()
    }

    fn slab(names: u32) -> NameSlab {
        let mut slab = NameSlab::new(SlotSize::of(&name(0)));
        for i in 0..names {
            assert_eq!(slab.insert(&name(i)), Some(i));
        }
        slab
    }

    #[test]
    fn slab_reuses_freed_slots_before_new_ones() {
        let mut slots = slab(900);
        assert!(slots.remove(3, &name(3)) && slots.remove(600, &name(600)));
        assert_eq!(slots.len(), 898);
        assert_eq!(slots.insert(b"x"), Some(600));
        assert_eq!(slots.insert(b"y"), Some(3));
        assert_eq!(slots.insert(b"z"), Some(900));
    }

    #[test]
    fn slab_that_empties_frees_its_chunks() {
        let mut slots = slab(900);
        for i in (0..900).rev() {
            assert!(slots.remove(i, &name(i)));
        }
        assert_eq!((slots.chunks.len(), slots.len()), (1, 0));
        assert_eq!((slots.insert(b"x"), slots.insert(b"y")), (Some(0), Some(1)));
        assert!(slots.remove(0, b"x") && !slots.remove(0, b"x"));
    }

    #[test]
    fn slab_removes_only_a_matching_name() {
        let mut slots = slab(1);
        assert!(!slots.remove(0, b"001") && !slots.remove(1, b"000") && !slots.remove(0, b""));
        assert!(slots.remove(0, b"000") && !slots.remove(0, b"000"));
        // What a free slot contains is no name.
        assert!((0..8).all(|len| !slots.remove(0, &[FREE; 8][..len])));
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn slab_lists_the_names_in_taken_slots() {
        let mut slots = slab(900);
        for i in (0..900).step_by(3) {
            assert!(slots.remove(i, &name(i)));
        }
        let listed: Vec<(u32, Vec<u8>)> = slots.names().map(|(slot, name)| (slot, name.to_vec())).collect();
        let taken = (0..900).filter(|i| i % 3 != 0).map(|i| (i, name(i)));
        assert_eq!(listed, taken.collect::<Vec<_>>());
    }

    #[test]
    fn slab_pop_yields_taken_slots_only() {
        let mut slots = slab(900);
        for i in (0..900).step_by(3) {
            assert!(slots.remove(i, &name(i)));
        }
        let popped: Vec<u32> = std::iter::from_fn(|| slots.pop())
            .inspect(|(slot, popped)| assert_eq!(popped.as_bytes(), name(*slot)))
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(
            popped,
            (0..900).rev().filter(|i| i % 3 != 0).collect::<Vec<u32>>()
        );
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn slab_keeps_names_of_every_length() {
        for len in (0..600).chain([4095, 4096, 1 << 20]) {
            let name = vec![FREE; len];
            let size = SlotSize::of(&name);
            assert!(
                len < size.bytes() && size.bytes() <= (len + SLOT_UNIT).max(8),
                "{len}"
            );
            let mut slots = NameSlab::new(size);
            assert_eq!((slots.insert(&name), slots.insert(&name)), (Some(0), Some(1)));
            assert!(slots.remove(0, &name), "{len}");
            assert_eq!(slots.insert(&name), Some(0));
            let popped: Vec<_> = std::iter::from_fn(|| slots.pop()).collect();
            assert!(
                popped.iter().all(|(_, popped)| popped.as_bytes() == name),
                "{len}"
            );
            assert_eq!(popped.len(), 2);
        }
    }

    /// The size of a chunk is a size class of the allocator.
    #[test]
    fn slab_wastes_less_than_a_slot_of_each_chunk() {
        for len in 0..256 {
            let name = vec![b'n'; len];
            let mut slots = NameSlab::new(SlotSize::of(&name));
            for _ in 0..slots.slots_per_chunk {
                slots.insert(&name);
            }
            let used = slots.chunks[0].len();
            assert_eq!((slots.chunks.len(), slots.chunks[0].capacity()), (1, used));
            assert!(
                used <= CHUNK_BYTES && used > CHUNK_BYTES - slots.slot_bytes,
                "{len}"
            );
        }
    }
}
