//! The arithmetic of a majority. Pure.

use std::time::Duration;

use redis_dlock_client::Lost;

/// How many of these servers must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Majority {
    servers: usize,
}

impl Majority {
    pub fn of(servers: usize) -> Self {
        Self { servers }
    }

    pub fn needed(self) -> usize {
        self.servers / 2 + 1
    }

    /// Whether so many refusals leave none.
    pub fn is_blocked_by(self, refusals: usize) -> bool {
        refusals + self.needed() > self.servers
    }

    /// How long a majority lasts, by what each lasts.
    pub fn remaining(self, each: impl IntoIterator<Item = Duration>) -> Duration {
        let mut each: Vec<Duration> = each.into_iter().collect();
        each.sort_unstable_by(|one, other| other.cmp(one));
        each.get(self.needed() - 1).copied().unwrap_or_default()
    }

    /// Why it is lost, by the reasons of those that are.
    pub fn lost(self, each: impl IntoIterator<Item = Lost>) -> Lost {
        let (mut refusals, mut is_over) = (0, false);
        for lost in each {
            match lost {
                Lost::MaxHold => is_over = true,
                Lost::NotHeld | Lost::NotOwner | Lost::Stale | Lost::WrongType => refusals += 1,
                _ => {}
            }
        }
        match (is_over, self.is_blocked_by(refusals)) {
            (true, _) => Lost::MaxHold,
            (false, true) => Lost::NotHeld,
            (false, false) => Lost::LeaseExpired,
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
        use Lost::{LeaseExpired, MaxHold, NotHeld, NotOwner, Stale};
        let majority = Majority::of(5);
        assert_eq!(majority.lost([NotHeld, NotOwner, Stale]), NotHeld);
        assert_eq!(majority.lost([NotHeld, NotOwner, LeaseExpired]), LeaseExpired);
        assert_eq!(majority.lost([NotHeld, MaxHold]), MaxHold);
        assert_eq!(majority.lost([]), LeaseExpired);
    }
}
