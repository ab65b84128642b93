//! Bytes as a sequence of choices.

/// A cursor over the bytes of a fuzzer.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// 0 at the end.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            None => 0,
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
        }
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A length of two bytes and that many bytes, or fewer at the end.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(u16::from_le_bytes([self.byte(), self.byte()]));
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
