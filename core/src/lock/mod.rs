//! The state of a lock: its holders, and their invariants.
//!
//! The functions here keep them, and [`Lock::is_sound`] checks a lock that was decoded:
//! - owners are distinct, every holder has at least one hold, fences increase in the order of the holders;
//! - the number of holders is within the smallest limit among them.

mod codec;
mod owner_and_ids;

use crate::collections::Shrink;
use crate::fence::Fence;
use crate::names::Limit;
use crate::time::{Instant, LeaseClock};
use crate::wire::Error;
pub(crate) use codec::{Removal, Writer, decode_change};
pub use codec::{decode_lock, encode_lock};
use owner_and_ids::OwnerAndIds;

/// The number of holds with a request id that an owner may have on a lock.
pub const MAX_REQUEST_IDS: usize = 64;

/// A lock, free when it has no holders.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    holders: Holders,
}

/// An owner that holds a lock: 56 bytes, and the heap memory of its `OwnerAndIds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    owner_and_ids: OwnerAndIds,
    pub(crate) fence: Fence,
    /// Read it by [`Holder::lease_end`]: a grace period may stretch it.
    granted_until: Instant,
    pub(crate) since: Instant,
    pub(crate) limit: Limit,
    anonymous: u32,
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
        let holders = self
            .holders()
            .iter()
            .map(|holder| holder.owner_and_ids.heap_bytes());
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

impl Holder {
    /// A holder without holds: the caller adds the first.
    pub(crate) fn new(
        owner: &[u8],
        limit: Limit,
        fence: Fence,
        since: Instant,
        granted_until: Instant,
    ) -> Self {
        Self {
            owner_and_ids: OwnerAndIds::of(owner),
            fence,
            granted_until,
            since,
            limit,
            anonymous: 0,
        }
    }

    /// A holder by a grant of now, without holds.
    pub(crate) fn granted(
        owner: &[u8],
        limit: Limit,
        fence: Fence,
        lease_ms: u64,
        clock: LeaseClock,
    ) -> Self {
        Self::new(owner, limit, fence, clock.now, clock.now.after_ms(lease_ms))
    }

    /// Adds a hold, with a request id that must be new, or without.
    pub(crate) fn add_hold(&mut self, request_id: Option<&[u8]>) -> Result<(), Error> {
        match request_id {
            Some(id) => self.add_with_id(id),
            None => self.add_anonymous(1),
        }
    }

    /// The owner.
    pub fn owner(&self) -> &[u8] {
        self.owner_and_ids.owner()
    }

    /// The fencing token.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The limit with which it was granted the lock.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// When this holder was granted the lock.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// When this lease ends.
    pub fn lease_end(&self, clock: LeaseClock) -> Instant {
        clock.stretched(self.granted_until)
    }

    /// What remains of this lease, in milliseconds, rounded down.
    pub fn lease_ms(&self, clock: LeaseClock) -> u64 {
        clock.now.ms_until(self.lease_end(clock))
    }

    /// Whether the lease has not expired.
    pub fn is_live(&self, clock: LeaseClock) -> bool {
        self.lease_end(clock) > clock.now
    }

    /// The lease lasts this many milliseconds from now, or as long as before: it is never shortened. Returns whether it is
    /// longer now.
    pub(crate) fn extend(&mut self, lease_ms: u64, clock: LeaseClock) -> bool {
        let before = self.lease_end(clock);
        self.granted_until = before.max(clock.now.after_ms(lease_ms));
        self.granted_until > before
    }

    /// The hold count.
    pub fn holds(&self) -> u64 {
        u64::from(self.anonymous).saturating_add(self.request_ids().len() as u64)
    }

    /// The holder as it is stored, for comparisons.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn without_times(&self) -> Self {
        Self {
            since: Instant::DISTANT_PAST,
            granted_until: Instant::DISTANT_PAST,
            ..self.clone()
        }
    }

    pub(crate) fn anonymous(&self) -> u32 {
        self.anonymous
    }

    pub(crate) fn request_ids(&self) -> &[Box<[u8]>] {
        self.owner_and_ids.request_ids()
    }

    pub(crate) fn has_request_id(&self, request_id: &[u8]) -> bool {
        self.request_ids().iter().any(|own| **own == *request_id)
    }

    /// Adds `count` holds without a request id.
    pub(crate) fn add_anonymous(&mut self, count: u32) -> Result<(), Error> {
        self.anonymous = self.anonymous.checked_add(count).ok_or(Error::TooManyHolds)?;
        Ok(())
    }

    /// Adds a hold with that request id, which must be new.
    pub(crate) fn add_with_id(&mut self, request_id: &[u8]) -> Result<(), Error> {
        if self.request_ids().len() >= MAX_REQUEST_IDS {
            return Err(Error::TooManyRequestIds(MAX_REQUEST_IDS));
        }
        self.owner_and_ids.push(request_id);
        Ok(())
    }

    /// Releases a hold without a request id, else the latest one.
    pub(crate) fn release_one(&mut self) {
        match self.anonymous.checked_sub(1) {
            Some(fewer) => self.anonymous = fewer,
            None => self.owner_and_ids.pop(),
        }
    }

    pub(crate) fn release_all(&mut self) {
        self.anonymous = 0;
        self.owner_and_ids.clear();
    }

    /// Releases the hold with that request id. Returns whether there was one.
    pub(crate) fn release_by_id(&mut self, request_id: &[u8]) -> bool {
        self.owner_and_ids.remove(request_id)
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
