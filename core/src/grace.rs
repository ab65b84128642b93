//! The grace period after a start or a promotion: no lock is granted, so that a hold that was lost in
//! persistence or replication expires before another owner is granted the lock.

use super::inputs::Role;
use super::lease_clock::LeaseClock;
use super::time::Instant;

/// The configured length of a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraceLength {
    /// 0 = none.
    Ms(u64),
    /// The longest lease known, and at least the longest that clients may request.
    LongestLease {
        /// The longest lease that clients may request.
        max_lease_ms: u64,
    },
}

/// The configured grace periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraceSettings {
    /// After a start as a primary.
    pub startup: GraceLength,
    /// After a promotion.
    pub failover: GraceLength,
}

impl Default for GraceLength {
    fn default() -> Self {
        Self::Ms(0)
    }
}

/// The grace period of a server, and what may start the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grace {
    /// Start and end of the last grace period.
    begin: Instant,
    end: Instant,
    /// What starts the next grace period.
    pending: Option<Trigger>,
    /// The longest lease seen since the start, here or from elsewhere.
    longest_lease_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Trigger {
    Start,
    Promotion,
}

impl Grace {
    /// A server that starts.
    pub const fn starting() -> Self {
        Self {
            begin: Instant::DISTANT_PAST,
            end: Instant::DISTANT_PAST,
            pending: Some(Trigger::Start),
            longest_lease_ms: 0,
        }
    }

    /// When the last grace period ends.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// What is left, in milliseconds, rounded up.
    pub fn left_ms(&self, now: Instant) -> u64 {
        now.ms_until_rounded_up(self.end)
    }

    /// Takes note of a grace period of the primary, or in the append-only file.
    pub fn observe(&mut self, left_ms: u64, now: Instant) {
        // Holders that the primary still lists were live when its grace period began, even if this clock says otherwise.
        self.run(left_ms, Instant::DISTANT_PAST, now);
    }

    /// Restores a grace period that was stored together with the locks: the leases of these count from now.
    pub fn restore(&mut self, left_ms: u64, now: Instant) {
        self.run(left_ms, now, now);
    }

    /// Starts a grace period, or extends the current one, which keeps its start.
    fn run(&mut self, left_ms: u64, begin: Instant, now: Instant) {
        if left_ms > 0 {
            if self.end <= now {
                self.begin = begin;
            }
            self.end = self.end.max(now.after_ms(left_ms));
        }
    }

    /// Takes note of a lease that was granted here or elsewhere.
    pub fn observe_lease(&mut self, lease_ms: u64) {
        self.longest_lease_ms = self.longest_lease_ms.max(lease_ms);
    }

    /// How long a grace period would be that started now.
    pub fn length_ms(&self, length: GraceLength) -> u64 {
        match length {
            GraceLength::Ms(ms) => ms,
            GraceLength::LongestLease { max_lease_ms } => max_lease_ms.max(self.longest_lease_ms),
        }
    }

    /// This server is the primary now.
    pub fn promoted(&mut self) {
        self.pending = Some(Trigger::Promotion);
    }

    /// This server is a replica now.
    pub fn demoted(&mut self) {
        self.pending = None;
    }

    /// Whether [`Grace::start_if_pending`] must be called before the next decision.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Starts the pending grace period, not while the server loads: it counts from the end of that. Returns whether a
    /// grace period started.
    pub fn start_if_pending(&mut self, role: Role, settings: &GraceSettings, now: Instant) -> bool {
        if role == Role::Loading {
            return false;
        }
        let length = match self.pending.take().filter(|_| role == Role::Primary) {
            None => return false,
            Some(Trigger::Start) => settings.startup,
            Some(Trigger::Promotion) => settings.failover,
        };
        let grace_ms = self.length_ms(length);
        self.run(grace_ms, now, now);
        grace_ms > 0
    }

    /// By which leases are compared at `now`.
    pub fn clock(&self, now: Instant) -> LeaseClock {
        LeaseClock {
            now,
            grace_begin: self.begin,
            grace_end: self.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(5_000);
    const SETTINGS: GraceSettings = GraceSettings {
        startup: GraceLength::Ms(10),
        failover: GraceLength::LongestLease { max_lease_ms: 20 },
    };

    #[test]
    fn primary_start_and_promotion_start_configured_grace() {
        let mut grace = Grace::starting();
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        assert_eq!(grace.left_ms(NOW), 10);
        assert!(
            !grace.start_if_pending(Role::Primary, &SETTINGS, NOW.after_ms(5)),
            "one start begins one grace"
        );
        assert_eq!(grace.end(), NOW.after_ms(10));
        grace.promoted();
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW.after_ms(5)));
        assert_eq!(grace.end(), NOW.after_ms(25));
    }

    #[test]
    fn replica_starts_no_grace() {
        let mut grace = Grace::starting();
        assert!(!grace.start_if_pending(Role::Replica, &SETTINGS, NOW));
        grace.promoted();
        grace.demoted();
        assert!(!grace.is_pending() && !grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        assert_eq!(grace.left_ms(NOW), 0);
    }

    #[test]
    fn grace_is_never_shortened() {
        let mut grace = Grace::starting();
        grace.observe(30, NOW);
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        grace.observe(0, NOW.after_ms(1));
        assert_eq!(grace.end(), NOW.after_ms(30));
    }

    #[test]
    fn extended_grace_keeps_its_start() {
        let mut grace = Grace::starting();
        grace.restore(10, NOW);
        grace.restore(10, NOW.after_ms(9));
        assert_eq!((grace.begin, grace.end()), (NOW, NOW.after_ms(19)));
        grace.restore(10, NOW.after_ms(19));
        assert_eq!((grace.begin, grace.end()), (NOW.after_ms(19), NOW.after_ms(29)));
    }

    #[test]
    fn replicated_grace_covers_all_holders_not_removed() {
        let mut grace = Grace::starting();
        grace.observe(10, NOW);
        assert_eq!(
            (grace.begin, grace.end()),
            (Instant::DISTANT_PAST, NOW.after_ms(10))
        );
    }

    #[test]
    fn grace_of_longest_lease_covers_leases_beyond_current_maximum() {
        for (longest_known, expected) in [(19, 20), (21, 21)] {
            let mut grace = Grace::starting();
            grace.observe_lease(longest_known);
            grace.observe_lease(1);
            grace.promoted();
            assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
            assert_eq!(grace.left_ms(NOW), expected);
        }
    }

    #[test]
    fn grace_of_zero_does_not_start() {
        let none = GraceSettings {
            startup: GraceLength::Ms(0),
            ..SETTINGS
        };
        let mut grace = Grace::starting();
        assert!(!grace.start_if_pending(Role::Primary, &none, NOW));
        assert_eq!(grace.end(), Instant::DISTANT_PAST);
    }
}
