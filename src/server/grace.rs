//! The grace after a start or a promotion: a time in which nobody gets a lock, so that a hold which was
//! lost on the way here has ended before anyone else is admitted.

use super::config;
use super::ctx::Flags;
use crate::lock::Instant;

pub struct Grace {
    /// The end of the last grace.
    end: Instant,
    /// What may begin a grace, not yet dealt with.
    pending: Option<Beginning>,
    /// The longest lease seen since the start, here or from elsewhere.
    longest_lease_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    Start,
    Promotion,
}

impl Grace {
    pub const fn starting() -> Self {
        Self {
            end: Instant::DISTANT_PAST,
            pending: Some(Beginning::Start),
            longest_lease_ms: 0,
        }
    }

    pub fn end(&self) -> Instant {
        self.end
    }

    /// What is left, in milliseconds, rounded up.
    pub fn left_ms(&self, now: Instant) -> u64 {
        now.ms_until_rounded_up(self.end)
    }

    /// What another server, or this one before a restart, had left of its grace.
    pub fn learn(&mut self, left_ms: u64, now: Instant) {
        if left_ms > 0 {
            self.end = self.end.max(now.after_ms(left_ms));
        }
    }

    pub fn learn_lease(&mut self, lease_ms: u64) {
        self.longest_lease_ms = self.longest_lease_ms.max(lease_ms);
    }

    pub fn promoted(&mut self) {
        self.pending = Some(Beginning::Promotion);
    }

    pub fn demoted(&mut self) {
        self.pending = None;
    }

    /// Begins what is pending, as soon as this server decides. Whether a grace began.
    pub fn settle(&mut self, flags: Flags, now: Instant) -> bool {
        if self.pending.is_none() || flags.is_loading() {
            return false;
        }
        let setting = match self.pending.take().filter(|_| flags.is_primary()) {
            None => return false,
            Some(Beginning::Start) => &config::STARTUP_GRACE_MS,
            Some(Beginning::Promotion) => &config::FAILOVER_GRACE_MS,
        };
        let grace_ms = config::grace_ms(setting, self.longest_lease_ms);
        self.learn(grace_ms, now);
        grace_ms > 0
    }
}
