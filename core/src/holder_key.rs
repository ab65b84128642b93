//! The identity of a holder: its owner, and the request ids of its holds.
//!
//! A server has one of these for every held lock, so it is as small as possible.

use super::inline_bytes::InlineBytes;

/// An owner, and the request ids of its holds, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HolderKey(Repr);

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

impl HolderKey {
    /// An owner without request ids.
    pub fn of(owner: &[u8]) -> Self {
        Self(Repr::Plain(InlineBytes::new(owner)))
    }

    pub fn owner(&self) -> &[u8] {
        match &self.0 {
            Repr::Plain(owner) => owner.as_bytes(),
            Repr::WithIds(key) => &key.owner,
        }
    }

    pub fn request_ids(&self) -> &[Box<[u8]>] {
        match &self.0 {
            Repr::Plain(_) => &[],
            Repr::WithIds(key) => &key.request_ids,
        }
    }

    /// Adds the latest request id.
    pub fn push(&mut self, id: &[u8]) {
        match &mut self.0 {
            Repr::WithIds(key) => {
                let mut ids = std::mem::take(&mut key.request_ids).into_vec();
                ids.reserve_exact(1);
                ids.push(id.into());
                key.request_ids = ids.into_boxed_slice();
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
        let Repr::WithIds(key) = &mut self.0 else { return };
        let mut ids = std::mem::take(&mut key.request_ids).into_vec();
        change(&mut ids);
        if ids.is_empty() {
            *self = Self::of(&key.owner);
        } else {
            key.request_ids = ids.into_boxed_slice();
        }
    }

    /// The heap memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Plain(owner) => owner.heap_bytes(),
            Repr::WithIds(key) => key
                .request_ids
                .iter()
                .map(|id| size_of_val(id).saturating_add(id.len()))
                .fold(size_of::<WithIds>(), usize::saturating_add)
                .saturating_add(key.owner.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: usize = 22;

    #[test]
    fn holder_key_of_short_owner_needs_no_heap() {
        assert_eq!(size_of::<HolderKey>(), 24);
        for length in [0, 1, SHORT] {
            assert_eq!(HolderKey::of(&vec![b'o'; length]).heap_bytes(), 0, "{length}");
        }
        assert_eq!(HolderKey::of(&[b'o'; SHORT + 1]).heap_bytes(), SHORT + 1);
    }

    #[test]
    fn holder_key_keeps_owner_and_request_ids() {
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
    fn holder_key_without_request_ids_removes_none() {
        let mut holder_key = HolderKey::of(b"owner");
        holder_key.pop();
        holder_key.clear();
        assert!(!holder_key.remove(b"a"));
        assert_eq!(holder_key, HolderKey::of(b"owner"));
    }
}
