use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::Error;
use crate::hold::Plan;
use crate::identity::Limit;

/// How to acquire a lock, on one server or on several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub limit: Limit,
    pub lease: Duration,
    pub wait: Duration,
    pub renews: bool,
    pub max_hold: Option<Duration>,
    pub at_least: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: Limit::Mutex,
            lease: Duration::from_secs(30),
            wait: Duration::from_secs(30),
            renews: true,
            max_hold: None,
            at_least: None,
        }
    }
}

impl Options {
    /// Rejects what no server accepts, before anything is sent.
    pub fn validate(&self) -> Result<(), Error> {
        if self.lease < Duration::from_millis(1) {
            return Err(Error::Invalid("the lease must be at least 1 ms".into()));
        }
        match self.limit {
            Limit::AtMost(0) | Limit::AtMost(0x8000_0000..) => {
                Err(Error::Invalid("the limit must be 1 to 2147483647".into()))
            }
            _ => Ok(()),
        }
    }

    /// How long to wait; `None`: without a timeout.
    pub fn wait_limit(&self) -> Option<Duration> {
        // The server accepts no longer timeouts.
        Some(self.wait).filter(|&wait| wait < Duration::from_secs(1 << 40))
    }

    /// The plan for a hold that was granted at `now`.
    pub fn plan(&self, now: BootInstant) -> Plan {
        // With jitter: locks that were acquired at the same time are not renewed at the same time forever.
        let third = |lease: Duration| (lease / 3).mul_f64(rand::random_range(0.85..=1.0));
        Plan {
            lease: self.lease,
            renew_after: self.renews.then(|| third(self.lease)),
            over_at: self.max_hold.map(|max_hold| now + max_hold),
            keep_until: self.at_least.map(|at_least| now + at_least),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_intervals_of_simultaneous_holds_differ() {
        let now = BootInstant::now();
        let third = Duration::from_secs(10);
        let intervals: Vec<_> = (0..100)
            .filter_map(|_| Options::default().plan(now).renew_after)
            .collect();
        assert!(
            intervals
                .iter()
                .all(|interval| *interval <= third && *interval >= third * 8 / 10)
        );
        let spread = intervals
            .iter()
            .max()
            .unwrap()
            .saturating_sub(*intervals.iter().min().unwrap());
        assert!(spread > third / 20, "{spread:?}");
    }
}
