//! A holder of a lock: its owner, its fence, when its lease ends, and its holds.

use super::owner_and_ids::OwnerAndIds;
use crate::fence::Fence;
use crate::names::Limit;
use crate::time::{Instant, LeaseClock};
use crate::wire::Error;

/// The number of holds with a request id that an owner may have on a lock.
pub const MAX_REQUEST_IDS: usize = 64;

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

    pub(super) fn heap_bytes(&self) -> usize {
        self.owner_and_ids.heap_bytes()
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
