//! Short byte strings without an allocation.

/// Strings of up to this many bytes need no allocation.
const INLINE: usize = 22;

/// An immutable byte string in 24 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineBytes(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    /// The bytes after the string are zero.
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    Heap(Box<[u8]>),
}

impl InlineBytes {
    /// A copy of these bytes.
    pub fn new(string: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..string.len()), u8::try_from(string.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(string);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(string.into())),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(bytes) => bytes,
        }
    }

    /// The heap memory of the string, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_bytes_round_trip_and_allocate_only_beyond_22_bytes() {
        assert_eq!(size_of::<InlineBytes>(), 24);
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1000] {
            let string: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let copy = InlineBytes::new(&string);
            assert_eq!(copy.as_bytes(), string);
            assert_eq!(copy.heap_bytes(), if len > INLINE { len } else { 0 });
        }
    }
}
