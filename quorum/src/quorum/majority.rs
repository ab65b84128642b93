//! The arithmetic of a majority. Pure.

use std::time::Duration;

use crate::error::{Error, LostReason, NoQuorum, NodeFailure};

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

    /// Whether this number of refusals makes a majority impossible.
    pub fn is_blocked_by(self, refusals: usize) -> bool {
        refusals + self.needed() > self.servers
    }

    /// Only this many have agreed, and the others failed.
    pub fn missed(self, agreed: usize, failures: Vec<NodeFailure>) -> Error {
        Error::NoQuorum(NoQuorum {
            needed: self.needed(),
            agreed,
            failures,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn any_two_majorities_share_a_server_and_smaller_ones_need_not() {
        for servers in 1..20 {
            let needed = Majority::of(servers).needed();
            assert!(2 * needed > servers && 2 * (needed - 1) <= servers, "{servers}");
        }
    }

    #[test]
    fn as_many_refusals_as_leave_no_majority_block_it() {
        for servers in 1..20 {
            let majority = Majority::of(servers);
            for refusals in 0..=servers {
                let is_possible = servers - refusals >= majority.needed();
                assert_eq!(
                    majority.is_blocked_by(refusals),
                    !is_possible,
                    "{refusals} of {servers}"
                );
            }
        }
    }

    #[test]
    fn majority_lasts_as_long_as_the_longest_minority_leaves() {
        let majority = Majority::of(5);
        assert_eq!(majority.remaining([9, 1, 5, 3, 7].map(ms)), ms(5));
        assert_eq!(majority.remaining([9, 1, 5].map(ms)), ms(1));
        assert_eq!(majority.remaining([9, 5].map(ms)), ms(0));
    }

    #[test]
    fn loss_is_reported_by_servers_only_if_enough_of_them_say_so() {
        use LostReason::{LeaseExpired, MaxHoldExceeded, NotHeld, NotOwner, Stale};
        let majority = Majority::of(5);
        assert_eq!(majority.lost_reason([NotHeld, NotOwner, Stale]), NotHeld);
        assert_eq!(
            majority.lost_reason([NotHeld, NotOwner, LeaseExpired]),
            LeaseExpired
        );
        assert_eq!(majority.lost_reason([NotHeld, MaxHoldExceeded]), MaxHoldExceeded);
        assert_eq!(majority.lost_reason([]), LeaseExpired);
    }
}
