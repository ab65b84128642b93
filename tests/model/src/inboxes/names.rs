//! Which states are the same: those that differ only in the numbers of cursors, inboxes, calls, tickets and fences, which
//! are compared with each other, and never come again.
//!
//! Everything that is such a number is a `u64`, and nothing else that differs between states is.

use std::hash::{Hash, Hasher};

/// What a server would hash, with each number as how many others came before it.
#[derive(Clone, Default)]
pub struct Canonical {
    bytes: Vec<u8>,
    numbers: Vec<u64>,
}

impl Canonical {
    pub fn of(state: &impl Hash) -> Self {
        let mut canonical = Self::default();
        state.hash(&mut canonical);
        canonical
    }

    /// Hashes what knows numbers of this server, and its own. A number that the server does not know it will never know.
    pub fn hash<H: Hasher>(&self, state: &mut H, others: &impl Hash) {
        state.write(&self.bytes);
        others.hash(&mut Known {
            numbers: &self.numbers,
            state,
        });
    }
}

impl Hasher for Canonical {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        let place = self.numbers.iter().position(|known| *known == number);
        let place = place.unwrap_or_else(|| {
            self.numbers.push(number);
            self.numbers.len() - 1
        });
        self.write_u8(place as u8);
    }

    fn write_i64(&mut self, number: i64) {
        self.write(&number.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        unreachable!("only hashed")
    }
}

struct Known<'a, H> {
    numbers: &'a [u64],
    state: &'a mut H,
}

const ZERO: u8 = u8::MAX;
const UNKNOWN: u8 = u8::MAX - 1;

impl<H: Hasher> Hasher for Known<'_, H> {
    fn write(&mut self, bytes: &[u8]) {
        self.state.write(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        let place = self.numbers.iter().position(|known| *known == number);
        self.state.write_u8(match place {
            _ if number == 0 => ZERO,
            Some(place) => place as u8,
            None => UNKNOWN,
        });
    }

    fn write_i64(&mut self, number: i64) {
        self.state.write_i64(number);
    }

    fn finish(&self) -> u64 {
        unreachable!("only hashed")
    }
}
