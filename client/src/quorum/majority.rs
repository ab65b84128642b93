//! The arithmetic of a majority. Pure.

use std::time::Duration;

use crate::error::LostReason;

/// A number of servers, of which a majority must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Majority {
    servers: usize,
}

impl Majority {
    pub fn of(servers: usize) -> Self {
        Self { servers }
    }

    /// Its size: the smallest for which any two have a server in common.
    pub fn needed(self) -> usize {
        self.servers / 2 + 1
    }

    /// Whether so many refusals make a majority impossible.
    pub fn is_blocked_by(self, refusals: usize) -> bool {
        refusals + self.needed() > self.servers
    }

    /// How long a majority of holds lasts, by how long each of them does.
    pub fn remaining(self, each: impl IntoIterator<Item = Duration>) -> Duration {
        let mut each: Vec<Duration> = each.into_iter().collect();
        each.sort_unstable_by(|one, other| other.cmp(one));
        each.get(self.needed() - 1).copied().unwrap_or_default()
    }

    /// Why a majority of holds is lost, by why some of them are.
    pub fn lost_reason(self, each: impl IntoIterator<Item = LostReason>) -> LostReason {
        let (mut refusals, mut exceeded) = (0, false);
        for reason in each {
            match reason {
                LostReason::MaxHoldExceeded => exceeded = true,
                LostReason::LeaseExpired => {}
                LostReason::NotHeld | LostReason::NotOwner | LostReason::Stale => refusals += 1,
            }
        }
        match (exceeded, self.is_blocked_by(refusals)) {
            (true, _) => LostReason::MaxHoldExceeded,
            (false, true) => LostReason::NotHeld,
            (false, false) => LostReason::LeaseExpired,
        }
    }
}
