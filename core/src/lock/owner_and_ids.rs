//! An owner and its request ids, packed.
//!
//! A server has one of these for every held lock, so it is as small as possible.

use crate::collections::InlineBytes;

/// An owner, and the request ids of its holds, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerAndIds(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    Plain(InlineBytes),
    WithIds(Box<WithIds>),
}

/// There is at least one request id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WithIds {
    owner: Box<[u8]>,
    request_ids: Box<[Box<[u8]>]>,
}

impl OwnerAndIds {
    /// An owner without request ids.
    pub fn of(owner: &[u8]) -> Self {
        Self(Repr::Plain(InlineBytes::new(owner)))
    }

    pub fn owner(&self) -> &[u8] {
        match &self.0 {
            Repr::Plain(owner) => owner.as_bytes(),
            Repr::WithIds(both) => &both.owner,
        }
    }

    pub fn request_ids(&self) -> &[Box<[u8]>] {
        match &self.0 {
            Repr::Plain(_) => &[],
            Repr::WithIds(both) => &both.request_ids,
        }
    }

    /// Adds the latest request id.
    pub fn push(&mut self, id: &[u8]) {
        match &mut self.0 {
            Repr::WithIds(both) => {
                let mut ids = std::mem::take(&mut both.request_ids).into_vec();
                ids.reserve_exact(1);
                ids.push(id.into());
                both.request_ids = ids.into_boxed_slice();
            }
            Repr::Plain(owner) => {
                self.0 = Repr::WithIds(Box::new(WithIds {
                    owner: owner.as_bytes().into(),
                    request_ids: Box::new([id.into()]),
                }));
            }
        }
    }

    /// Removes the latest request id.
    pub fn pop(&mut self) {
        self.change_ids(|ids| {
            ids.pop();
        });
    }

    /// Removes a request id. Returns whether it was there.
    pub fn remove(&mut self, id: &[u8]) -> bool {
        let before = self.request_ids().len();
        self.change_ids(|ids| ids.retain(|own| **own != *id));
        self.request_ids().len() < before
    }

    pub fn clear(&mut self) {
        self.change_ids(Vec::clear);
    }

    fn change_ids(&mut self, change: impl FnOnce(&mut Vec<Box<[u8]>>)) {
        let Repr::WithIds(both) = &mut self.0 else { return };
        let mut ids = std::mem::take(&mut both.request_ids).into_vec();
        change(&mut ids);
        if ids.is_empty() {
            *self = Self::of(&both.owner);
        } else {
            both.request_ids = ids.into_boxed_slice();
        }
    }

    /// The heap memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Plain(owner) => owner.heap_bytes(),
            Repr::WithIds(both) => both
                .request_ids
                .iter()
                .map(|id| size_of_val(id).saturating_add(id.len()))
                .fold(size_of::<WithIds>(), usize::saturating_add)
                .saturating_add(both.owner.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: usize = 22;

    #[test]
    fn short_owner_needs_no_heap() {
        assert_eq!(size_of::<OwnerAndIds>(), 24);
        for length in [0, 1, SHORT] {
            assert_eq!(OwnerAndIds::of(&vec![b'o'; length]).heap_bytes(), 0, "{length}");
        }
        assert_eq!(OwnerAndIds::of(&[b'o'; SHORT + 1]).heap_bytes(), SHORT + 1);
    }

    #[test]
    fn owner_and_request_ids_are_kept() {
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 512] {
            let owner: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let plain = OwnerAndIds::of(&owner);
            let mut owner_and_ids = plain.clone();
            for id in [b"a", b"b", b"c"] {
                owner_and_ids.push(id);
                assert_eq!(owner_and_ids.owner(), owner);
            }
            assert_eq!(
                owner_and_ids
                    .request_ids()
                    .iter()
                    .map(|id| id[0])
                    .collect::<Vec<_>>(),
                b"abc"
            );
            assert!(owner_and_ids.remove(b"b") && !owner_and_ids.remove(b"b"));
            owner_and_ids.pop();
            assert_eq!(owner_and_ids.request_ids(), [Box::from(*b"a")]);
            let mut cleared = owner_and_ids.clone();
            cleared.clear();
            owner_and_ids.pop();
            assert_eq!((&owner_and_ids, &cleared), (&plain, &plain), "{length}");
        }
    }

    #[test]
    fn owner_without_request_ids_has_none_to_remove() {
        let mut owner_and_ids = OwnerAndIds::of(b"owner");
        owner_and_ids.pop();
        owner_and_ids.clear();
        assert!(!owner_and_ids.remove(b"a"));
        assert_eq!(owner_and_ids, OwnerAndIds::of(b"owner"));
    }
}
