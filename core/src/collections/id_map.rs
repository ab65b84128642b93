//! A map by numbers that nobody outside chooses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map whose keys are counted or allocated by this server: no client can make them collide.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by 2^64 / phi (Knuth, "The Art of Computer Programming", 6.4) and swaps the halves, so that neighbours and
/// addresses, whose low bits are zero, differ in all bits that a table looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(MULTIPLIER).rotate_left(32);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
