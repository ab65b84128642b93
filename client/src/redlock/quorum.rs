//! The arithmetic of a majority. Pure: no server, no clock; answers and times come in.

use std::time::Duration;

/// The part of a lease that clocks may differ by, in thousandths.
const DRIFT_PER_MILLE: u32 = 10;
/// So much of it the hold on each server takes off by itself, and 2 ms besides: see
/// [`safe_deadline`](crate::clock::safe_deadline).
const TAKEN_OFF_PER_MILLE: u32 = 1;

/// Some servers, most of which have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
}

impl Quorum {
    pub fn of(nodes: usize) -> Self {
        Self { nodes }
    }

    /// How many servers there are.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// So many have to agree: the fewest of which any two groups have a server in common.
    pub fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// So many are enough to make a quorum impossible. For an even number it is a half of them.
    pub fn blocking(self) -> usize {
        (self.nodes + 1).saturating_sub(self.needed())
    }

    /// For how long a quorum holds out, if each server does for so long: as long as the last one but which
    /// there would be too few. Servers that are not told of do not hold out at all.
    pub fn lasts(self, each: impl IntoIterator<Item = Duration>) -> Duration {
        let mut each: Vec<Duration> = each.into_iter().collect();
        each.sort_unstable_by(|one, other| other.cmp(one));
        each.get(self.needed() - 1).copied().unwrap_or(Duration::ZERO)
    }
}

/// What of `remaining` is certain although the clocks of several servers differ more than those of two
/// machines: a hundredth of the lease and 2 ms are taken off in all. Never less than nothing.
pub(crate) fn certain(remaining: Duration, lease: Duration) -> Duration {
    remaining.saturating_sub(lease / 1000 * (DRIFT_PER_MILLE - TAKEN_OFF_PER_MILLE))
}

/// How a server answered one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Yes,
    /// Not now: others hold the lock.
    Busy,
    /// It may be otherwise the next time: the server is out of reach, for instance.
    Failed,
    /// It will not be otherwise the next time.
    Hopeless,
}

/// The answers to one request that went to all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    needed: usize,
    blocking: usize,
    yes: usize,
    busy: usize,
    failed: usize,
    hopeless: usize,
}

/// What the answers so far mean, whatever the others will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Open,
    /// Enough servers agreed.
    Reached,
    /// Too many others hold the lock.
    Busy,
    /// Too few agreed. It may be otherwise the next time.
    Failed,
    /// Too few agreed, and the next time it would be the same.
    Hopeless,
}

impl Tally {
    pub fn new(quorum: Quorum) -> Self {
        Self {
            needed: quorum.needed(),
            blocking: quorum.blocking(),
            yes: 0,
            busy: 0,
            failed: 0,
            hopeless: 0,
        }
    }

    /// One server, which has not been counted yet, has answered.
    pub fn count(&mut self, vote: Vote) -> Decision {
        *match vote {
            Vote::Yes => &mut self.yes,
            Vote::Busy => &mut self.busy,
            Vote::Failed => &mut self.failed,
            Vote::Hopeless => &mut self.hopeless,
        } += 1;
        self.decision()
    }

    pub fn decision(&self) -> Decision {
        if self.yes >= self.needed {
            Decision::Reached
        } else if self.busy + self.failed + self.hopeless < self.blocking {
            Decision::Open
        } else if self.hopeless >= self.blocking {
            Decision::Hopeless
        } else if self.busy >= self.blocking {
            Decision::Busy
        } else {
            Decision::Failed
        }
    }
}
