//! Cluster slots: which slot a key is in, and sets of slots.

use crc::{CRC_16_XMODEM, Crc};

const SLOTS: usize = 16_384;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = SLOTS / WORD_BITS;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: the CRC of what is between its first braces if that is not empty, else of the whole key.
pub fn slot_of(key: &[u8]) -> usize {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open.checked_add(1)?..)?;
        let length = rest
            .iter()
            .position(|byte| *byte == b'}')
            .filter(|length| *length > 0)?;
        rest.get(..length)
    });
    usize::from(CRC.checksum(tag.unwrap_or(key))).rem_euclid(SLOTS)
}

/// The bit of a slot in its word.
fn bit(slot: usize) -> u64 {
    1_u64.rotate_left(slot.rem_euclid(WORD_BITS) as u32)
}

/// A set of slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotSet([u64; WORDS]);

impl SlotSet {
    /// No slots.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Whether the slot is one of them.
    pub fn contains(&self, slot: usize) -> bool {
        let word = self.0.get(slot.div_euclid(WORD_BITS)).copied().unwrap_or(0);
        word & bit(slot) != 0
    }

    /// Adds a slot. Returns whether it is new.
    pub fn insert(&mut self, slot: usize) -> bool {
        let Some(word) = self.0.get_mut(slot.div_euclid(WORD_BITS)) else {
            return false;
        };
        let is_new = *word & bit(slot) == 0;
        *word |= bit(slot);
        is_new
    }

    /// Adds the slots of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// Removes the slots of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
    }

    pub(super) fn to_bytes(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flat_map(u64::to_be_bytes)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
        let words = words.try_into().ok().filter(|_| rest.is_empty())?;
        Some(Self(words))
    }

    /// Removes the slots that are not in `other`. Returns how many these were.
    pub fn intersect(&mut self, other: &Self) -> u32 {
        let mut removed = 0_u32;
        for (word, other) in self.0.iter_mut().zip(other.0) {
            removed = removed.saturating_add((*word & !other).count_ones());
            *word &= other;
        }
        removed
    }
}

impl Default for SlotSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<usize> for SlotSet {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_of_key_matches_cluster_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(
            slot_of(b"foo{}{bar}"),
            usize::from(CRC.checksum(b"foo{}{bar}")) % SLOTS
        );
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"open{"), usize::from(CRC.checksum(b"open{")) % SLOTS);
    }

    #[test]
    fn slot_is_new_again_after_it_left_the_set() {
        let mut slots = SlotSet::EMPTY;
        assert!(slots.insert(0) && slots.insert(16_383) && !slots.insert(0));
        let mut here = SlotSet::EMPTY;
        here.insert(16_383);
        assert_eq!(slots.intersect(&here), 1);
        assert!(slots.insert(0) && !slots.insert(16_383));
    }
}
