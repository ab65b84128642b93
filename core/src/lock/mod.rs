//! The state of a lock: its holders, and their invariants.
//!
//! The functions here keep them, and [`Lock::is_sound`] checks a lock that was decoded:
//! - owners are distinct, every holder has at least one hold, fences increase in the order of the holders;
//! - the number of holders is within the smallest limit among them.

mod codec;
mod holder;
mod owner_and_ids;

use crate::collections::Shrink;
use crate::time::{Instant, LeaseClock};
pub(crate) use codec::{Removal, Writer, decode_change};
pub use codec::{decode_lock, encode_lock};
pub use holder::{Holder, MAX_REQUEST_IDS};

/// A lock, free when it has no holders.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    holders: Holders,
}

/// Nearly every lock has one holder, which needs no allocation.
#[derive(Clone, Debug, Default)]
enum Holders {
    #[default]
    None,
    One(Holder),
    /// At least one.
    Many(Vec<Holder>),
}

impl Lock {
    /// All holders, oldest first, including expired ones that have not been removed yet.
    pub fn holders(&self) -> &[Holder] {
        self.holders.as_slice()
    }

    /// Whether the lock has no holders.
    pub fn is_free(&self) -> bool {
        matches!(self.holders, Holders::None)
    }

    /// The holders whose leases have not expired.
    pub fn live_holders(&self, clock: LeaseClock) -> impl Iterator<Item = &Holder> {
        self.holders().iter().filter(move |holder| holder.is_live(clock))
    }

    /// When the first lease ends.
    #[inline]
    pub fn first_lease_end(&self, clock: LeaseClock) -> Option<Instant> {
        self.holders().iter().map(|holder| holder.lease_end(clock)).min()
    }

    /// The heap memory of the lock, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let table = match &self.holders {
            Holders::None | Holders::One(_) => 0,
            Holders::Many(holders) => holders.capacity().saturating_mul(size_of::<Holder>()),
        };
        let holders = self.holders().iter().map(|holder| holder.heap_bytes());
        table.saturating_add(holders.sum())
    }

    pub(crate) fn get(&self, owner: &[u8]) -> Option<&Holder> {
        self.find(owner).map(|(_, holder)| holder)
    }

    /// The holder with its index.
    pub(crate) fn find(&self, owner: &[u8]) -> Option<(usize, &Holder)> {
        let mut holders = self.holders().iter().enumerate();
        holders.find(|(_, holder)| holder.owner() == owner)
    }

    pub(crate) fn holders_mut(&mut self) -> &mut [Holder] {
        self.holders.as_mut_slice()
    }

    /// Adds the youngest holder.
    pub(crate) fn push(&mut self, holder: Holder) {
        self.holders.push(holder);
    }

    /// Removes the holders for which `is_removed` is true, and passes each to `on_removed`.
    pub(crate) fn remove_if(
        &mut self,
        is_removed: impl Fn(&Holder) -> bool,
        mut on_removed: impl FnMut(&Holder),
    ) {
        match &mut self.holders {
            Holders::None => {}
            Holders::One(holder) => {
                if is_removed(holder) {
                    on_removed(holder);
                    self.holders = Holders::None;
                }
            }
            Holders::Many(holders) => {
                if remove_some(holders, &is_removed, &mut on_removed) {
                    self.holders = Holders::None;
                }
            }
        }
    }

    /// Whether the invariants at the top of this file hold.
    pub(crate) fn is_sound(&self) -> bool {
        let holders = self.holders();
        let limit = holders.iter().map(|holder| holder.limit).min();
        let within_limit = limit.is_none_or(|limit| limit.allows(holders.len()));
        let rising = holders.is_sorted_by(|a, b| a.fence < b.fence);
        let mut owners: Vec<&[u8]> = holders.iter().map(Holder::owner).collect();
        owners.sort_unstable();
        within_limit && rising && owners.is_sorted_by(|a, b| a < b)
    }
}

/// Locks are equal if their holders are, in whichever form these are stored.
impl PartialEq for Lock {
    fn eq(&self, other: &Self) -> bool {
        self.holders() == other.holders()
    }
}

impl Holders {
    fn as_slice(&self) -> &[Holder] {
        match self {
            Self::None => &[],
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Many(holders) => holders,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Holder] {
        match self {
            Self::None => &mut [],
            Self::One(holder) => std::slice::from_mut(holder),
            Self::Many(holders) => holders,
        }
    }

    fn push(&mut self, holder: Holder) {
        match self {
            Self::None => *self = Self::One(holder),
            Self::One(_) => self.push_second(holder),
            Self::Many(holders) => holders.push(holder),
        }
    }

    fn push_second(&mut self, second: Holder) {
        if let Self::One(first) = std::mem::take(self) {
            *self = Self::Many(vec![first, second]);
        }
    }
}

/// Returns whether no holder is left. Not generic, so that the code for a lock with one holder stays small.
fn remove_some(
    holders: &mut Vec<Holder>,
    is_removed: &dyn Fn(&Holder) -> bool,
    on_removed: &mut dyn FnMut(&Holder),
) -> bool {
    holders.retain(|holder| {
        let is_removed = is_removed(holder);
        if is_removed {
            on_removed(holder);
        }
        !is_removed
    });
    holders.shrink_if_sparse();
    holders.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_with_one_holder_is_56_bytes() {
        assert_eq!(size_of::<Holder>(), 56);
        assert_eq!(size_of::<Lock>(), 56);
    }
}
