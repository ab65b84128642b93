//! Whether enough replicas acknowledge changes. With `dlock.min-sync-replicas` nothing is granted or extended otherwise.

/// How far somebody has the stream of replication. Opaque: a larger one includes all that a smaller one does.
pub type Offset = u64;

/// What was last seen of the replicas.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// How many are online.
    pub online: usize,
    /// A change that too few have acknowledged in time, until they do: others are not tried before.
    overdue: Option<Offset>,
}

impl Replicas {
    /// Whether fewer than `min` acknowledge changes.
    #[inline]
    pub(super) fn are_fewer_than(&self, min: usize) -> bool {
        self.online < min || (min > 0 && self.overdue.is_some())
    }

    /// The replicas that are online have acknowledged these offsets. Returns the one that `min` of them have.
    pub(super) fn observe(&mut self, mut acknowledged: Vec<Offset>, min: usize) -> Option<Offset> {
        self.online = acknowledged.len();
        acknowledged.sort_unstable_by(|a, b| b.cmp(a));
        let by_enough = match min.checked_sub(1) {
            None => Some(Offset::MAX),
            Some(last) => acknowledged.get(last).copied(),
        };
        if by_enough >= self.overdue {
            self.overdue = None;
        }
        by_enough
    }

    /// Too few have acknowledged this change in time.
    pub(crate) fn are_late(&mut self, offset: Option<Offset>) {
        self.overdue = self.overdue.max(offset);
    }
}
