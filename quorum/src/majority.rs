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
