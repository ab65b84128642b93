//! Who a holder is: its owner, and the names of its named holds.
//!
//! A server has one of these for every held lock, so that each form is as small as it can be.

/// An owner of at most so many bytes that has no named holds needs no memory of its own: it stands where the
/// pointers of the others would.
const SHORT: usize = 22;

/// An owner, and the names of its named holds, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
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
    names: Box<[Box<[u8]>]>,
}

impl Identity {
    /// An owner without named holds.
    pub fn of(owner: &[u8]) -> Self {
        Self::short(owner).unwrap_or_else(|| Self(Form::Long(owner.into())))
    }

    fn short(owner: &[u8]) -> Option<Self> {
        let mut bytes = [0; SHORT];
        bytes.get_mut(..owner.len())?.copy_from_slice(owner);
        let length = u8::try_from(owner.len()).ok()?;
        Some(Self(Form::Short { length, bytes }))
    }

    pub fn owner(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Form::Long(owner) => owner,
            Form::Named(named) => &named.owner,
        }
    }

    pub fn names(&self) -> &[Box<[u8]>] {
        match &self.0 {
            Form::Short { .. } | Form::Long(_) => &[],
            Form::Named(named) => &named.names,
        }
    }

    /// Adds the youngest name.
    pub fn push(&mut self, name: &[u8]) {
        match &mut self.0 {
            Form::Named(named) => {
                let mut names = std::mem::take(&mut named.names).into_vec();
                names.reserve_exact(1);
                names.push(name.into());
                named.names = names.into_boxed_slice();
            }
            Form::Short { .. } | Form::Long(_) => {
                self.0 = Form::Named(Box::new(Named {
                    owner: self.owner().into(),
                    names: Box::new([name.into()]),
                }));
            }
        }
    }

    /// Takes the youngest name away.
    pub fn pop(&mut self) {
        self.change_names(|names| {
            names.pop();
        });
    }

    /// Takes a name away; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.names().len();
        self.change_names(|names| names.retain(|own| **own != *name));
        self.names().len() < before
    }

    pub fn clear(&mut self) {
        self.change_names(Vec::clear);
    }

    fn change_names(&mut self, change: impl FnOnce(&mut Vec<Box<[u8]>>)) {
        let Form::Named(named) = &mut self.0 else { return };
        let mut names = std::mem::take(&mut named.names).into_vec();
        change(&mut names);
        if names.is_empty() {
            *self = Self::of(&named.owner);
        } else {
            named.names = names.into_boxed_slice();
        }
    }

    /// The bytes beside its own size.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Long(owner) => owner.len(),
            Form::Named(named) => {
                let names = named.names.iter();
                names
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
        assert_eq!(size_of::<Identity>(), 24);
        for length in [0, 1, SHORT] {
            assert_eq!(Identity::of(&vec![b'o'; length]).heap_bytes(), 0, "{length}");
        }
        assert_eq!(Identity::of(&[b'o'; SHORT + 1]).heap_bytes(), SHORT + 1);
    }

    #[test]
    fn owners_of_any_length_and_their_names_are_kept() {
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 512] {
            let owner: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let plain = Identity::of(&owner);
            let mut identity = plain.clone();
            for name in [b"a", b"b", b"c"] {
                identity.push(name);
                assert_eq!(identity.owner(), owner);
            }
            assert_eq!(
                identity.names().iter().map(|name| name[0]).collect::<Vec<_>>(),
                b"abc"
            );
            assert!(identity.remove(b"b") && !identity.remove(b"b"));
            identity.pop();
            assert_eq!(identity.names(), [Box::from(*b"a")]);
            let mut cleared = identity.clone();
            cleared.clear();
            identity.pop();
            assert_eq!((&identity, &cleared), (&plain, &plain), "{length}");
        }
    }

    #[test]
    fn who_has_no_names_loses_none() {
        let mut identity = Identity::of(b"owner");
        identity.pop();
        identity.clear();
        assert!(!identity.remove(b"a"));
        assert_eq!(identity, Identity::of(b"owner"));
    }
}
