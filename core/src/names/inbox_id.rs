//! The names of inboxes and of calls.

use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

/// The largest length of an inbox's name.
pub const MAX_INBOX_BYTES: usize = 64;

/// Names an inbox in this process. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboxId(NonZeroUsize);

/// Names the call of a reader: a GRANTS that waits for answers, or the client of a BLOCK. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call(NonZeroUsize);

impl InboxId {
    pub(crate) fn new(number: NonZeroUsize) -> Self {
        Self(number)
    }

    /// The client of a BLOCK: its inbox has no other call, and the same number.
    pub fn call_of_block(self) -> Call {
        Call(self.0)
    }
}

impl Call {
    /// The inbox, if it is the call of a BLOCK.
    pub(crate) fn inbox_of_block(self) -> InboxId {
        InboxId(self.0)
    }

    /// As a number, for who can carry nothing else.
    pub fn number(self) -> NonZeroUsize {
        self.0
    }

    /// The call with this number.
    pub fn from_number(number: NonZeroUsize) -> Self {
        Self(number)
    }
}

/// As a `u64`, for [`crate::IdHasher`].
impl Hash for InboxId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.get() as u64);
    }
}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.get() as u64);
    }
}
