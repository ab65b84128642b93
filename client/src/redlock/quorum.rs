//! The arithmetic of a majority. Pure: replies and times go in; nothing here sends or reads a clock.

use std::time::Duration;

/// How much the clocks of the servers may differ, in thousandths of a lease.
const DRIFT_PER_MILLE: u32 = 10;
/// The part of it that the hold on each server subtracts already, with 2 ms for rounding: see
/// [`safe_deadline`](crate::clock::safe_deadline).
const SUBTRACTED_PER_MILLE: u32 = 1;

/// A number of servers, of which a majority must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
}

impl Quorum {
    pub fn of(nodes: usize) -> Self {
        Self { nodes }
    }

    /// The number of servers.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// The size of a majority: the smallest for which any two have a server in common.
    pub fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many refusals make a majority impossible: half of the servers if their number is even.
    pub fn blocking(self) -> usize {
        (self.nodes + 1).saturating_sub(self.needed())
    }

    /// How long a majority of leases lasts, by how long each of them does. Servers without a lease count as zero.
    pub fn remaining(self, each: impl IntoIterator<Item = Duration>) -> Duration {
        let mut each: Vec<Duration> = each.into_iter().collect();
        each.sort_unstable_by(|one, other| other.cmp(one));
        each.get(self.needed() - 1).copied().unwrap_or(Duration::ZERO)
    }
}

/// How much of `remaining` is certain on several servers, whose clocks may differ more than those of two machines: in
/// all, 1 % of the lease and 2 ms are subtracted. Never negative.
pub(crate) fn certain(remaining: Duration, lease: Duration) -> Duration {
    remaining.saturating_sub(lease / 1000 * (DRIFT_PER_MILLE - SUBTRACTED_PER_MILLE))
}

/// The reply of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Yes,
    /// Others hold the lock.
    Busy,
    /// A transient error: the server is unavailable, for instance.
    Failed,
    /// A permanent error.
    Rejected,
}

/// The replies to one request that was sent to all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    needed: usize,
    blocking: usize,
    yes: usize,
    busy: usize,
    failed: usize,
    rejected: usize,
}

/// What the replies so far decide, whatever the others will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Open,
    /// Enough servers agreed.
    Reached,
    /// Too many others hold the lock.
    Busy,
    /// Too few agreed; a retry may succeed.
    Failed,
    /// Too few agreed; a retry would not help.
    Rejected,
}

impl Tally {
    pub fn new(quorum: Quorum) -> Self {
        Self {
            needed: quorum.needed(),
            blocking: quorum.blocking(),
            yes: 0,
            busy: 0,
            failed: 0,
            rejected: 0,
        }
    }

    /// Counts the reply of one more server.
    pub fn count(&mut self, vote: Vote) -> Decision {
        *match vote {
            Vote::Yes => &mut self.yes,
            Vote::Busy => &mut self.busy,
            Vote::Failed => &mut self.failed,
            Vote::Rejected => &mut self.rejected,
        } += 1;
        self.decision()
    }

    pub fn decision(&self) -> Decision {
        if self.yes >= self.needed {
            Decision::Reached
        } else if self.busy + self.failed + self.rejected < self.blocking {
            Decision::Open
        } else if self.rejected >= self.blocking {
            Decision::Rejected
        } else if self.busy >= self.blocking {
            Decision::Busy
        } else {
            Decision::Failed
        }
    }
}
