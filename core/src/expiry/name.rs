//! A key's name in 24 bytes, without an allocation for the usual short ones.

/// Names up to this many bytes need no allocation.
const INLINE: usize = 22;

pub struct Name(Repr);

enum Repr {
    Short { len: u8, bytes: [u8; INLINE] },
    Long(Box<[u8]>),
}

impl Name {
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(name);
                Self(Repr::Short { len, bytes })
            }
            _ => Self(Repr::Long(name.into())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_as_it_went_in() {
        assert_eq!(size_of::<Name>(), 24);
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1000] {
            let name: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Name::new(&name).as_bytes(), name);
        }
    }
}
