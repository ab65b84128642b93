//! The grace period after a start or a promotion: no lock is granted, so that a hold that was lost in
//! persistence or replication expires before another owner is granted the lock.

use super::{Instant, LeaseClock, Role};

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

impl GraceSettings {
    /// The setting of this kind.
    pub fn of(&self, kind: GraceKind) -> GraceLength {
        match kind {
            GraceKind::Startup => self.startup,
            GraceKind::Failover => self.failover,
        }
    }
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
    pending: Option<GraceKind>,
    /// What this server last started, a part of the grace period.
    own: Option<OwnGrace>,
    /// The end of what it went on with: stored, from its primary, or of another kind.
    inherited_end: Instant,
    /// The longest lease seen since the start, here or from elsewhere.
    longest_lease_ms: u64,
}

/// What starts a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraceKind {
    /// This server started as a primary.
    Startup,
    /// It was promoted.
    Failover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OwnGrace {
    kind: GraceKind,
    begin: Instant,
    end: Instant,
}

impl Grace {
    /// A server that starts.
    pub const fn starting() -> Self {
        Self {
            begin: Instant::DISTANT_PAST,
            end: Instant::DISTANT_PAST,
            pending: Some(GraceKind::Startup),
            own: None,
            inherited_end: Instant::DISTANT_PAST,
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
        self.inherit(left_ms, Instant::DISTANT_PAST, now);
    }

    /// Restores a grace period that was stored together with the locks: the leases of these count from now.
    pub fn restore(&mut self, left_ms: u64, now: Instant) {
        self.inherit(left_ms, now, now);
    }

    fn inherit(&mut self, left_ms: u64, begin: Instant, now: Instant) {
        if self.run(left_ms, begin, now) {
            self.inherited_end = self.inherited_end.max(now.after_ms(left_ms));
        }
    }

    /// Starts a grace period, or extends the current one, which keeps its start. Returns whether there is any.
    fn run(&mut self, left_ms: u64, begin: Instant, now: Instant) -> bool {
        if left_ms > 0 {
            if self.end <= now {
                self.begin = begin;
            }
            self.end = self.end.max(now.after_ms(left_ms));
        }
        left_ms > 0
    }

    /// What is left ends after this time, if not before.
    pub fn end_within(&mut self, left_ms: u64, now: Instant) {
        let latest = now.after_ms(left_ms);
        self.inherited_end = self.inherited_end.min(latest);
        self.own = self.own.map(|own| OwnGrace {
            end: own.end.min(latest),
            ..own
        });
        self.end = self.end.min(latest);
    }

    /// The setting of this kind is `length` now, which is not longer than before. A running grace period of that kind
    /// lasts no longer, counted from its start. What was inherited is of any kind and counts from now, since nobody
    /// knows when it began.
    pub(crate) fn shorten(&mut self, kind: GraceKind, length: GraceLength, now: Instant) {
        let length_ms = self.length_ms(length);
        self.inherited_end = self.inherited_end.min(now.after_ms(length_ms));
        if let Some(own) = self.own.as_mut().filter(|own| own.kind == kind) {
            own.end = own.end.min(own.begin.after_ms(length_ms));
        }
        let own_end = self.own.map_or(Instant::DISTANT_PAST, |own| own.end);
        self.end = self.end.min(self.inherited_end.max(own_end));
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
        self.pending = Some(GraceKind::Failover);
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
        let Some(kind) = self.pending.take().filter(|_| role == Role::Primary) else {
            return false;
        };
        let grace_ms = self.length_ms(settings.of(kind));
        let starts = self.run(grace_ms, now, now);
        if starts {
            let former_end = self.own.map_or(Instant::DISTANT_PAST, |own| own.end);
            self.inherited_end = self.inherited_end.max(former_end);
            let (begin, end) = (now, now.after_ms(grace_ms));
            self.own = Some(OwnGrace { kind, begin, end });
        }
        starts
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
    fn shorter_setting_ends_grace_of_its_kind_that_long_after_its_start() {
        let grace = |left_ms: u64| {
            let mut grace = Grace::starting();
            assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
            grace.observe(left_ms, NOW);
            grace
        };
        let shortened = |mut grace: Grace, kind, ms| {
            grace.shorten(kind, GraceLength::Ms(ms), NOW.after_ms(5));
            grace.left_ms(NOW.after_ms(5))
        };
        use GraceKind::{Failover, Startup};
        for (kind, ms, left_ms) in [
            (Startup, 7, 2),
            (Startup, 4, 0),
            (Startup, 11, 5),
            (Failover, 0, 5),
        ] {
            assert_eq!(shortened(grace(0), kind, ms), left_ms, "{kind:?} {ms}");
        }
        // Of what another server began, nobody knows how long ago.
        for (kind, ms, left_ms) in [
            (Startup, 7, 7),
            (Startup, 0, 0),
            (Failover, 8, 8),
            (Failover, 0, 5),
        ] {
            assert_eq!(shortened(grace(60), kind, ms), left_ms, "{kind:?} {ms}");
        }
    }

    #[test]
    fn shorter_setting_leaves_former_grace_of_other_kind() {
        let mut grace = Grace::starting();
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        grace.promoted();
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        grace.shorten(GraceKind::Startup, GraceLength::Ms(0), NOW);
        assert_eq!(grace.left_ms(NOW), 20);
        grace.shorten(GraceKind::Failover, GraceLength::Ms(0), NOW);
        assert_eq!(grace.left_ms(NOW), 0);
    }

    #[test]
    fn grace_that_was_ended_at_the_primary_ends_here() {
        let mut grace = Grace::starting();
        assert!(grace.start_if_pending(Role::Primary, &SETTINGS, NOW));
        grace.observe(60, NOW);
        grace.end_within(3, NOW);
        assert_eq!(grace.left_ms(NOW), 3);
        grace.end_within(9, NOW);
        assert_eq!(grace.left_ms(NOW), 3, "never longer");
        grace.end_within(0, NOW);
        assert_eq!(grace.left_ms(NOW), 0);
        grace.shorten(GraceKind::Startup, GraceLength::Ms(9), NOW);
        assert_eq!(grace.left_ms(NOW), 0);
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
