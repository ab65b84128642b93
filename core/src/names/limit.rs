//! How many holders a lock may have at once.

/// 1 = mutex, n = semaphore, no limit = shared lock. A smaller limit is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u32);

impl Limit {
    /// One holder.
    pub const MUTEX: Self = Self(1);
    /// Any number of holders.
    pub const SHARED: Self = Self(u32::MAX);
    /// The largest `n` of `LIMIT n`.
    pub const MAX: u32 = i32::MAX as u32;

    /// `None` unless `n` is from 1 to [`Limit::MAX`].
    pub fn new(n: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&n).then_some(Self(n))
    }

    /// The number of holders, `None` for a shared lock.
    pub fn get(self) -> Option<u32> {
        (self != Self::SHARED).then_some(self.0)
    }

    /// Whether a request with this limit and a holder with the other one do not mean the same lock: a semaphore has one
    /// size. A mutex and a shared lock are the writers and readers of one.
    pub fn contradicts(self, other: Self) -> bool {
        let is_semaphore = |limit| limit != Self::MUTEX && limit != Self::SHARED;
        self != other && (is_semaphore(self) || is_semaphore(other))
    }

    /// Whether this many holders are within the limit.
    pub fn allows(self, holders: usize) -> bool {
        self.get()
            .is_none_or(|n| u32::try_from(holders).is_ok_and(|holders| holders <= n))
    }
}
