//! Who a holder is: its owner, and the request_ids of its named holds.
//!
//! A server has one of these for every held lock, so that each form is as small as it can be.

/// An owner of at most so many bytes that has no named holds needs no memory of its own: it stands where the
/// pointers of the others would.
const SHORT: usize = 22;

/// An owner, and the request_ids of its named holds, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HolderKey(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    /// What follows the owner is zero.
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    Long(Box<[u8]>),
    Named(Box<Named>),
}

/// There is at least one name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    owner: Box<[u8]>,
    request_ids: Box<[Box<[u8]>]>,
}

impl HolderKey {
    /// An owner without named holds.
    pub fn of(owner: &[u8]) -> Self {
        Self::short(owner).unwrap_or_else(|| Self(Repr::Long(owner.into())))
    }

    fn short(owner: &[u8]) -> Option<Self> {
        let mut bytes = [0; SHORT];
        bytes.get_mut(..owner.len())?.copy_from_slice(owner);
        let length = u8::try_from(owner.len()).ok()?;
        Some(Self(Repr::Short { length, bytes }))
    }

    pub fn owner(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Repr::Long(owner) => owner,
            Repr::Named(named) => &named.owner,
        }
    }

    pub fn request_ids(&self) -> &[Box<[u8]>] {
        match &self.0 {
            Repr::Short { .. } | Repr::Long(_) => &[],
            Repr::Named(named) => &named.request_ids,
        }
    }

    /// Adds the youngest name.
    pub fn push(&mut self, name: &[u8]) {
        match &mut self.0 {
            Repr::Named(named) => {
                let mut request_ids = std::mem::take(&mut named.request_ids).into_vec();
                request_ids.reserve_exact(1);
                request_ids.push(name.into());
                named.request_ids = request_ids.into_boxed_slice();
            }
            Repr::Short { .. } | Repr::Long(_) => {
                self.0 = Repr::Named(Box::new(Named {
                    owner: self.owner().into(),
                    request_ids: Box::new([name.into()]),
                }));
            }
        }
    }

    /// Takes the youngest name away.
    pub fn pop(&mut self) {
        self.change_names(|request_ids| {
            request_ids.pop();
        });
    }

    /// Takes a name away; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.request_ids().len();
        self.change_names(|request_ids| request_ids.retain(|own| **own != *name));
        self.request_ids().len() < before
    }

    pub fn clear(&mut self) {
        self.change_names(Vec::clear);
    }

    fn change_names(&mut self, change: impl FnOnce(&mut Vec<Box<[u8]>>)) {
        let Repr::Named(named) = &mut self.0 else { return };
        let mut request_ids = std::mem::take(&mut named.request_ids).into_vec();
        change(&mut request_ids);
        if request_ids.is_empty() {
            *self = Self::of(&named.owner);
        } else {
            named.request_ids = request_ids.into_boxed_slice();
        }
    }

    /// The bytes beside its own size.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Short { .. } => 0,
            Repr::Long(owner) => owner.len(),
            Repr::Named(named) => {
                let request_ids = named.request_ids.iter();
                request_ids
                    .map(|name| size_of_val(name).saturating_add(name.len()))
                    .fold(size_of::<Named>(), usize::saturating_add)
                    .saturating_add(named.owner.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_owners_without_names_need_no_memory_of_their_own() {
        assert_eq!(size_of::<HolderKey>(), 24);
        for length in [0, 1, SHORT] {
            assert_eq!(HolderKey::of(&vec![b'o'; length]).heap_bytes(), 0, "{length}");
        }
        assert_eq!(HolderKey::of(&[b'o'; SHORT + 1]).heap_bytes(), SHORT + 1);
    }

    #[test]
    fn owners_of_any_length_and_their_names_are_kept() {
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 512] {
            let owner: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let plain = HolderKey::of(&owner);
            let mut holder_key = plain.clone();
            for name in [b"a", b"b", b"c"] {
                holder_key.push(name);
                assert_eq!(holder_key.owner(), owner);
            }
            assert_eq!(
                holder_key
                    .request_ids()
                    .iter()
                    .map(|name| name[0])
                    .collect::<Vec<_>>(),
                b"abc"
            );
            assert!(holder_key.remove(b"b") && !holder_key.remove(b"b"));
            holder_key.pop();
            assert_eq!(holder_key.request_ids(), [Box::from(*b"a")]);
            let mut cleared = holder_key.clone();
            cleared.clear();
            holder_key.pop();
            assert_eq!((&holder_key, &cleared), (&plain, &plain), "{length}");
        }
    }

    #[test]
    fn who_has_no_names_loses_none() {
        let mut holder_key = HolderKey::of(b"owner");
        holder_key.pop();
        holder_key.clear();
        assert!(!holder_key.remove(b"a"));
        assert_eq!(holder_key, HolderKey::of(b"owner"));
    }
}
