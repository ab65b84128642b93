//! The counter of fencing tokens: one per server, larger with every grant.
//!
//! The counter starts at the wall clock (milliseconds since 2024 times 2048) and grows by one per grant. So it
//! falls behind the clock, and a server that lost its data starts above all fences that it issued before. After
//! a promotion it also skips the fences that an isolated old primary may still be issuing.

use super::last_fences::LastFences;
use super::{Fence, MAX_FENCE};
use crate::names::LockNameRef;

/// How far a promotion advances: an isolated old primary must issue this many fences to catch up.
const PROMOTION_GAP: Fence = 1 << 26;
/// Random bits added to the gap: two servers promoted from one primary differ.
const RANDOM_BITS: u32 = 21;
/// Fences per millisecond: no server sustains two million grants per second.
pub(crate) const FENCES_PER_MS: u64 = 2048;
/// 2024-01-01T00:00:00Z in milliseconds since 1970.
const EPOCH_MS: u64 = 1_704_067_200_000;
/// 366 days.
const YEAR_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The wall clock as a fence. Only used to start or advance the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock(Fence);

impl WallClock {
    /// From milliseconds since 1970.
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        let fence = unix_ms.saturating_sub(EPOCH_MS).saturating_mul(FENCES_PER_MS);
        Self(if fence < MAX_FENCE { fence } else { MAX_FENCE })
    }

    pub(crate) fn is_at_least(self, fence: Fence) -> bool {
        self.0 >= fence
    }
}

/// Why the counter has to advance before the next grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdvanceReason {
    /// This server started as a primary: above all fences that it knows or may have forgotten.
    Start,
    /// This server was promoted: also above what the old primary issued after its last message.
    Promotion,
}

/// The counter of fencing tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fences {
    /// The highest fence seen in grants, values and messages from a primary.
    known: Fence,
    /// Where the counter started on a server that knows no fence. It is not stored: as long as no lock was ever
    /// granted, the RDB file can be read without the module.
    floor: Fence,
    pending: Option<AdvanceReason>,
    /// The last fences of names, on a server of a quorum.
    last_fences: Option<LastFences>,
}

impl Fences {
    /// A server that starts: it knows no fence, and the counter has to advance.
    pub const fn starting() -> Self {
        Self {
            known: 0,
            floor: 0,
            pending: Some(AdvanceReason::Start),
            last_fences: None,
        }
    }

    /// The highest fence known.
    pub fn known(&self) -> Fence {
        self.known
    }

    /// Takes note of a fence that was issued elsewhere or earlier.
    pub fn observe(&mut self, fence: Fence) {
        self.known = self.known.max(fence);
        if let Some(last_fences) = &mut self.last_fences {
            last_fences.raise_all(fence);
        }
    }

    /// Whether a restart without the counter could issue known fences again: a promotion puts it ahead of the clock.
    pub fn is_ahead_of(&self, clock: WallClock) -> bool {
        !clock.is_at_least(self.known)
    }

    /// Whether this is a server of a quorum. Only then does a minimum of a new grant pass by the counter.
    pub fn set_quorum(&mut self, is_quorum: bool) {
        match (is_quorum, &self.last_fences) {
            (true, None) => self.last_fences = Some(LastFences::above(self.last())),
            (false, Some(_)) => self.last_fences = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Makes the counter advance before the next grant. The stronger reason wins.
    pub fn request_advance(&mut self, reason: AdvanceReason) {
        self.pending = match (self.pending, reason) {
            (Some(AdvanceReason::Promotion), _) | (_, AdvanceReason::Promotion) => {
                Some(AdvanceReason::Promotion)
            }
            (None | Some(AdvanceReason::Start), AdvanceReason::Start) => Some(AdvanceReason::Start),
        };
    }

    /// Whether the counter will advance.
    pub(crate) fn is_advance_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether [`Fences::advance`] must be called now. A start waits for the end of its grace period: a clock that
    /// is behind, by less than the grace period, has then passed the fences that were issued before.
    pub fn is_advance_due(&self, is_grace: bool) -> bool {
        match self.pending {
            None => false,
            Some(AdvanceReason::Start) => !is_grace,
            Some(AdvanceReason::Promotion) => true,
        }
    }

    /// Advances the counter as requested. `random`: any number, its low bits are used.
    ///
    /// Call it as soon as it is due: an isolated primary must not advance by a later clock than the server that is
    /// promoted in its place.
    pub fn advance(&mut self, clock: WallClock, random: u64) {
        let last = self.last();
        let gap = last
            .saturating_add(PROMOTION_GAP)
            .saturating_add(random & ((1 << RANDOM_BITS) - 1));
        match self.pending.take() {
            None => {}
            Some(AdvanceReason::Promotion) => self.known = gap.max(clock.0),
            Some(AdvanceReason::Start) if self.known == 0 => self.floor = clock.0,
            Some(AdvanceReason::Start) if clock.0 > self.known => self.known = clock.0,
            // The clock was set back, or the counter ran ahead of it.
            Some(AdvanceReason::Start) => self.known = gap,
        }
        let last = self.last();
        if let Some(last_fences) = &mut self.last_fences {
            last_fences.raise_all(last);
        }
    }

    /// Advances the counter to the clock and to `fence`, where these are larger.
    pub(crate) fn advance_beyond(&mut self, clock: WallClock, fence: Fence) {
        self.observe(self.last().max(clock.0).max(fence.min(MAX_FENCE)));
    }

    /// The fence of a new grant of this lock, `None` after the largest one. With a minimum it is the smallest from
    /// there on that is above the earlier ones of this name.
    pub fn next_fence(&mut self, name: LockNameRef<'_>, min: Option<Fence>) -> Option<Fence> {
        let last = match (&self.last_fences, min) {
            (Some(last_fences), Some(_)) => last_fences.last(name),
            (None, _) | (_, None) => self.last(),
        };
        let next = last.checked_add(1)?.max(min.unwrap_or_default());
        if next > MAX_FENCE {
            return None;
        }
        self.raise(name, next);
        Some(next)
    }

    /// Takes note of a fence that this lock has now: of a new grant, or a raised one.
    pub(crate) fn raise(&mut self, name: LockNameRef<'_>, fence: Fence) {
        self.known = self.known.max(fence);
        if let Some(last_fences) = &mut self.last_fences {
            last_fences.raise(name, fence);
        }
    }

    /// The largest fence that a client may ask for: what this server may have issued by the end of `ahead_ms`, on its
    /// clock.
    pub(crate) fn max_min_fence(&self, clock: WallClock, ahead_ms: u64) -> Fence {
        let ahead = ahead_ms.saturating_mul(FENCES_PER_MS);
        self.last().max(clock.0.saturating_add(ahead)).min(MAX_FENCE)
    }

    /// Where the cursors of a server that starts begin: above those of its earlier processes, which gave out fewer than
    /// [`FENCES_PER_MS`], also if the clock was set back and the counter was ahead of it. `random`: the bits below a
    /// millisecond are used.
    pub(crate) fn first_cursor(&self, clock: WallClock, random: u64) -> u64 {
        let above = clock.0.max(self.last()).min(MAX_FENCE / 2);
        above.saturating_add(random % FENCES_PER_MS)
    }

    /// The last value of the counter.
    pub(crate) fn last(&self) -> Fence {
        self.known.max(self.floor)
    }

    /// Whether a fence from a client (RESTORE) is known, or at most a year ahead of the clock: forged payloads, however
    /// many, must not exhaust the counter.
    pub fn is_plausible(&self, fence: Fence, clock: WallClock) -> bool {
        let year = YEAR_MS.saturating_mul(FENCES_PER_MS);
        fence <= self.known.max(clock.0.saturating_add(year))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"a" };
    const OTHER: LockNameRef<'_> = LockNameRef { db: 0, key: b"b" };
    const MS: u64 = EPOCH_MS + 1_000_000;
    const CLOCK: Fence = 1_000_000 * FENCES_PER_MS;

    fn advanced(known: Fence, reason: AdvanceReason, unix_ms: u64, random: u64) -> Fence {
        let mut fences = Fences {
            known,
            floor: 0,
            pending: Some(reason),
            last_fences: None,
        };
        fences.advance(WallClock::from_unix_ms(unix_ms), random);
        assert!(!fences.is_advance_due(false));
        fences.next_fence(NAME, None).unwrap()
    }

    #[test]
    fn start_with_clock_ahead_advances_fences_to_clock() {
        assert_eq!(advanced(0, AdvanceReason::Start, MS, 9), CLOCK + 1);
        assert_eq!(advanced(CLOCK - 1, AdvanceReason::Start, MS, 9), CLOCK + 1);
    }

    #[test]
    fn start_with_clock_behind_advances_fences_by_gap() {
        assert_eq!(
            advanced(CLOCK, AdvanceReason::Start, MS, 9),
            CLOCK + PROMOTION_GAP + 9 + 1
        );
        assert_eq!(
            advanced(CLOCK, AdvanceReason::Start, 0, 1 << 21),
            CLOCK + PROMOTION_GAP + 1
        );
    }

    #[test]
    fn promotion_advances_fences_to_larger_of_clock_and_gap() {
        assert_eq!(advanced(5, AdvanceReason::Promotion, MS, 9), CLOCK + 1);
        assert_eq!(
            advanced(CLOCK - 7, AdvanceReason::Promotion, MS, 9),
            CLOCK - 7 + PROMOTION_GAP + 9 + 1
        );
    }

    #[test]
    fn start_advances_fences_at_end_of_grace_and_promotion_at_once() {
        let mut fences = Fences::starting();
        assert!(!fences.is_advance_due(true) && fences.is_advance_due(false));
        fences.request_advance(AdvanceReason::Promotion);
        assert!(fences.is_advance_due(true));
    }

    #[test]
    fn start_without_known_fence_is_not_stored_before_first_grant() {
        let mut fences = Fences::starting();
        fences.advance(WallClock::from_unix_ms(MS), 9);
        assert_eq!(fences.known(), 0);
        assert_eq!(fences.next_fence(NAME, None), Some(CLOCK + 1));
        assert_eq!(fences.known(), CLOCK + 1);
    }

    #[test]
    fn promotion_after_start_without_grants_advances_by_gap() {
        let mut fences = Fences::starting();
        fences.advance(WallClock::from_unix_ms(MS), 9);
        fences.request_advance(AdvanceReason::Promotion);
        fences.advance(WallClock::from_unix_ms(0), 9);
        assert_eq!(fences.known(), CLOCK + PROMOTION_GAP + 9);
    }

    #[test]
    fn stronger_advance_reason_wins() {
        let mut fences = Fences {
            known: 0,
            floor: 0,
            pending: None,
            last_fences: None,
        };
        for (reason, expected) in [
            (AdvanceReason::Start, AdvanceReason::Start),
            (AdvanceReason::Promotion, AdvanceReason::Promotion),
            (AdvanceReason::Start, AdvanceReason::Promotion),
        ] {
            fences.request_advance(reason);
            assert_eq!(fences.pending, Some(expected));
        }
    }

    #[test]
    fn counter_is_ahead_of_the_clock_for_a_while_after_a_promotion() {
        let mut fences = Fences::starting();
        fences.observe(CLOCK);
        assert!(!fences.is_ahead_of(WallClock(CLOCK)) && fences.is_ahead_of(WallClock(CLOCK - 1)));
        fences.request_advance(AdvanceReason::Promotion);
        fences.advance(WallClock(CLOCK), 0);
        assert!(fences.is_ahead_of(WallClock(CLOCK + PROMOTION_GAP - 1)));
        assert!(!fences.is_ahead_of(WallClock(CLOCK + PROMOTION_GAP)));
    }

    #[test]
    fn wall_clock_ends_at_the_largest_fence() {
        assert_eq!(WallClock::from_unix_ms(u64::MAX), WallClock(MAX_FENCE));
    }

    /// A server of a quorum that has granted `NAME` the fence 101.
    fn quorum() -> Fences {
        let mut fences = Fences::starting();
        fences.observe(100);
        fences.set_quorum(true);
        assert_eq!(fences.next_fence(NAME, None), Some(101));
        fences
    }

    #[test]
    fn fence_with_minimum_is_above_the_last_of_its_name() {
        let mut fences = quorum();
        assert_eq!(fences.next_fence(OTHER, Some(90)), Some(101), "the floor");
        assert_eq!(fences.next_fence(OTHER, Some(90)), Some(102));
        assert_eq!(fences.next_fence(NAME, Some(500)), Some(500));
        assert_eq!(fences.known(), 500);
        assert_eq!(fences.next_fence(OTHER, Some(300)), Some(300), "another name");
        assert_eq!(
            fences.next_fence(OTHER, None),
            Some(501),
            "above all without a minimum"
        );
        assert_eq!(fences.next_fence(OTHER, Some(300)), Some(502));
        fences.raise(NAME, 600);
        assert_eq!(fences.next_fence(NAME, Some(1)), Some(601));
        assert_eq!(fences.next_fence(NAME, Some(MAX_FENCE)), Some(MAX_FENCE));
        assert_eq!(fences.next_fence(NAME, Some(1)), None);
    }

    #[test]
    fn every_advance_and_observed_fence_is_a_floor_for_all_names() {
        type Change = fn(&mut Fences);
        let changes: [Change; 5] = [
            |fences| fences.observe(1_000),
            |fences| fences.advance(WallClock(1_000), 0),
            |fences| fences.advance_beyond(WallClock(1_000), 0),
            |fences| {
                fences.request_advance(AdvanceReason::Promotion);
                fences.advance(WallClock(1_000), 0);
            },
            |fences| {
                fences.raise(OTHER, 1_000);
                fences.set_quorum(false);
                fences.set_quorum(true);
            },
        ];
        for change in changes {
            let mut fences = quorum();
            change(&mut fences);
            assert!(fences.last() >= 1_000);
            let last = fences.last();
            assert_eq!(fences.next_fence(NAME, Some(1)), Some(last + 1));
        }
    }

    #[test]
    fn largest_minimum_is_counter_or_clock_with_grace() {
        let fences = quorum();
        assert_eq!(fences.max_min_fence(WallClock(0), 0), 101);
        assert_eq!(fences.max_min_fence(WallClock(90), 3), 90 + 3 * FENCES_PER_MS);
        assert_eq!(fences.max_min_fence(WallClock(90), u64::MAX), MAX_FENCE);
    }

    #[test]
    fn fence_more_than_a_year_ahead_is_implausible() {
        let fences = Fences {
            known: CLOCK,
            floor: 0,
            pending: None,
            last_fences: None,
        };
        let year = YEAR_MS * FENCES_PER_MS;
        let past = WallClock::from_unix_ms(0);
        assert!(fences.is_plausible(CLOCK, past) && !fences.is_plausible(year.max(CLOCK) + 1, past));
        assert!(fences.is_plausible(CLOCK + year, WallClock::from_unix_ms(MS)));
        assert!(!fences.is_plausible(CLOCK + year + 1, WallClock::from_unix_ms(MS)));
    }

    #[test]
    fn forged_fences_do_not_add_up() {
        let mut fences = Fences::starting();
        let (clock, year) = (WallClock::from_unix_ms(MS), YEAR_MS * FENCES_PER_MS);
        for years in 1..200 {
            let forged = CLOCK + years * year;
            if fences.is_plausible(forged, clock) {
                fences.observe(forged);
            }
        }
        assert_eq!(fences.known(), CLOCK + year);
    }
}
