//! A clock that counts suspend, and the state of a hold on it as the client knows it. The state is pure: times and replies
//! go in, actions come out; nothing waits, sends, or reads the clock. Also chance and pauses, which a simulation replaces.
//!
//! - A hold is lost when its safe deadline has passed or when the server says so. A lost hold stays lost.
//! - A lease is renewed after about a third of it, or a third of what the grant left of it. A failed renewal is retried
//!   until the deadline, whatever the failure. After that nothing is sent.
//! - Nothing is renewed beyond the maximum hold time, or after the hold was given up.

use std::ops::{Add, RangeInclusive, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Lost};

/// A point in time on a monotonic clock that also counts the time during which the machine is suspended. Comparable
/// within one boot of one machine only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

/// The monotonic clock of Linux does not count suspend; that of macOS does, unlike the one that std uses there.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

impl BootInstant {
    /// The current time.
    pub fn now() -> Self {
        #[cfg(all(test, feature = "testing"))]
        if let Some(now) = crate::simulation::now() {
            return Self(now);
        }
        let now = clock_gettime(CLOCK);
        // Neither is negative: the clock starts at boot.
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// In whole microseconds after boot.
    pub(crate) fn as_micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    /// An instant of a simulated clock.
    #[cfg(test)]
    pub(crate) fn after_boot(time: Duration) -> Self {
        Self(time)
    }
}

impl Sub for BootInstant {
    type Output = Duration;

    /// The time since an earlier point in time; zero if that is later.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    /// Later by `time`, saturating.
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// When a lease may have expired, by a reply to a request that was sent at `sent`: `sent + (waited + lease) * 0.999 - 2 ms`.
///
/// This allows for a server clock that runs 0.1 % faster than this one. A clock that is being slewed can be faster than
/// that: chronyd may slew by 8 % unless `maxslewrate` is lowered. And no clock counts the time during which a hypervisor
/// freezes the machine. Only a resource that checks fences is safe against both.
pub(crate) fn safe_deadline(sent: BootInstant, waited: Duration, lease: Duration) -> BootInstant {
    // The server rounds both times down.
    const ROUNDING: Duration = Duration::from_millis(2);
    let granted = waited.saturating_add(lease);
    sent + granted.saturating_sub(granted / 1000).saturating_sub(ROUNDING)
}

/// The pauses before the second attempt, and before later ones, at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Exponential backoff with jitter.
#[derive(Default)]
pub(crate) struct Backoff {
    attempts: u8,
}

impl Backoff {
    /// Whether there was no pause yet.
    pub fn is_fresh(&self) -> bool {
        self.attempts == 0
    }

    /// The next pause; none after the first lost connection, because a new one takes its time.
    pub fn pause_after(&mut self, is_lost: bool) -> Duration {
        let is_first = self.is_fresh();
        let pause = self.pause();
        if is_lost && is_first {
            Duration::ZERO
        } else {
            pause
        }
    }

    /// The next pause: 50 to 100 % of the interval.
    pub fn pause(&mut self) -> Duration {
        // More would overflow, and is longer than the longest.
        let doubled = FIRST_PAUSE * (1 << self.attempts.min(10));
        self.attempts = self.attempts.saturating_add(1);
        doubled.min(LONGEST_PAUSE).mul_f64(random_share(0.5..=1.0))
    }
}

pub(crate) fn random_bits() -> u128 {
    #[cfg(all(test, feature = "testing"))]
    if let Some(bits) = crate::simulation::random_bits() {
        return bits;
    }
    rand::random()
}

/// A random number, for jitter.
pub(crate) fn random_share(range: RangeInclusive<f64>) -> f64 {
    #[cfg(all(test, feature = "testing"))]
    if let Some(bits) = crate::simulation::random_bits() {
        return range.start() + (range.end() - range.start()) * (bits % 1_000) as f64 / 1_000.0;
    }
    rand::random_range(range)
}

/// A failed renewal is retried after a 20th of the remaining lease, within these limits.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(20);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A renewal may be early by this part of the time after which it is due.
const EARLY: u32 = 64;

/// No lease ends with the time until which the lock is kept if it would be shorter than this: a release ends it then.
const SHORTEST_KEPT: Duration = Duration::from_secs(1);

/// How long to hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// The length of a lease.
    pub lease: Duration,
    /// How long after a confirmed request the lease is renewed.
    pub renew_after: Duration,
    /// How long the hold lasts, renewed or not.
    pub max_hold: Option<Duration>,
    /// How long the lock is kept, released or not.
    pub release_after: Option<Duration>,
}

/// What a lease ends with, other than its usual length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    None,
    /// The time until which the lock is kept. An EXTEND never shortens a lease, so no lease goes beyond that until most
    /// of the last one is over.
    Kept,
    /// The maximum hold time.
    MaxHold,
}

/// The state of a hold.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    plan: Plan,
    granted_at: BootInstant,
    /// The lease lasts at least until then.
    deadline: BootInstant,
    bound: Bound,
    renewal: Renewal,
    /// Whether the last renewal failed.
    is_failing: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    GivenUp,
    Lost(Lost),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// The lease lasts to the end.
    Never,
    DueAt(BootInstant),
    /// With this bound.
    InFlight(Bound),
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send EXTEND with this lease.
    Extend(Duration),
    /// Notify the holder.
    NotifyLost(Lost),
}

impl Plan {
    /// The lease to acquire with.
    pub fn first_lease(&self) -> Duration {
        self.lease(Duration::ZERO, Bound::None).0
    }

    /// The lease to ask for when the lock has been held for this long, under the last lease's bound.
    fn lease(&self, held: Duration, last: Bound) -> (Duration, Bound) {
        let (mut lease, mut bound) = (self.lease, Bound::None);
        let left = |limit: Option<Duration>| limit.map(|limit| limit.saturating_sub(held));
        let kept = left(self.release_after).filter(|left| *left >= SHORTEST_KEPT && last != Bound::Kept);
        for (left, of) in [(kept, Bound::Kept), (left(self.max_hold), Bound::MaxHold)] {
            if let Some(left) = left.filter(|&left| left <= lease) {
                (lease, bound) = (left, of);
            }
        }
        // The shortest that a server accepts.
        (lease.max(Duration::from_millis(1)), bound)
    }
}

impl Hold {
    /// A hold that was granted with the first lease, in reply to a request that was sent at `sent`.
    pub fn granted(plan: Plan, sent: BootInstant, waited: Duration, lease: Duration) -> Self {
        let mut hold = Self {
            plan,
            granted_at: sent + waited,
            deadline: safe_deadline(sent, waited, lease),
            bound: plan.lease(Duration::ZERO, Bound::None).1,
            renewal: Renewal::Never,
            is_failing: false,
            state: State::Held,
        };
        hold.deadline = hold.within_max_hold(hold.deadline);
        // The lease began when the wait ended. After a lost reply, the repeated grant has less of it left.
        hold.renewal = hold.next_renewal(hold.granted_at, lease);
        hold
    }

    /// How long it has been held.
    pub fn held(&self, now: BootInstant) -> Duration {
        now - self.granted_at
    }

    /// Whether the lock is held for certain.
    pub fn is_held(&self, now: BootInstant) -> bool {
        self.state == State::Held && now < self.deadline
    }

    /// How long the lock is held for certain without further renewal.
    pub fn remaining(&self, now: BootInstant) -> Duration {
        match self.state {
            State::Held => self.deadline - now,
            State::GivenUp | State::Lost(_) => Duration::ZERO,
        }
    }

    /// Why the lock is lost, if it is.
    pub fn lost(&self, now: BootInstant) -> Option<Lost> {
        match self.state {
            State::Lost(lost) => Some(lost),
            State::Held if now >= self.deadline => Some(self.expired()),
            State::Held | State::GivenUp => None,
        }
    }

    /// When [`Hold::on_time`] has something to do.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        match (self.state, self.renewal) {
            (State::Held, Renewal::DueAt(due)) => Some(due.min(self.deadline)),
            (State::Held, Renewal::Never | Renewal::InFlight(_)) => Some(self.deadline),
            (State::GivenUp | State::Lost(_), _) => None,
        }
    }

    /// Whether a renewal, rather than the end, is due at this time, which is soon.
    pub fn is_renewal_due(&self, at: BootInstant, now: BootInstant) -> bool {
        let is_soon = at - now <= self.plan.renew_after / EARLY;
        matches!(self.renewal, Renewal::DueAt(due) if due <= at && at < self.deadline) && is_soon
    }

    /// Called when [`Hold::wakes_at`] has passed.
    pub fn on_time(&mut self, now: BootInstant) -> Option<Action> {
        if self.state != State::Held {
            return None;
        }
        if now >= self.deadline {
            return Some(self.lose(self.expired()));
        }
        match self.renewal {
            Renewal::DueAt(due) if due <= now => {
                let (lease, bound) = self.plan.lease(self.held(now), self.bound);
                self.renewal = Renewal::InFlight(bound);
                Some(Action::Extend(lease))
            }
            _ => None,
        }
    }

    /// As [`Hold::on_extended`], for the EXTEND that renews the lease.
    pub fn on_renewed(
        &mut self,
        sent: BootInstant,
        answer: &Result<Duration, Error>,
        now: BootInstant,
    ) -> Option<Action> {
        let action = self.on_extended(sent, answer, now);
        if let Renewal::InFlight(bound) = self.renewal {
            self.renewal = match answer {
                Ok(lease) => {
                    self.bound = bound;
                    self.next_renewal(sent, *lease)
                }
                Err(_) => Renewal::DueAt(now + retry_pause(self.deadline - now)),
            };
        }
        action
    }

    /// The reply to an EXTEND that was sent at `sent`, or the error instead of it.
    pub fn on_extended(
        &mut self,
        sent: BootInstant,
        answer: &Result<Duration, Error>,
        now: BootInstant,
    ) -> Option<Action> {
        if self.state != State::Held {
            return None;
        }
        if now >= self.deadline {
            return Some(self.lose(self.expired()));
        }
        match answer {
            Ok(lease) => {
                let deadline = safe_deadline(sent, Duration::ZERO, *lease);
                self.deadline = self.deadline.max(self.within_max_hold(deadline));
                None
            }
            Err(error) => error.lost().map(|lost| self.lose(lost)),
        }
    }

    /// Takes note whether the last renewal failed: whether the one before had.
    pub fn set_failing(&mut self, is_failing: bool) -> bool {
        std::mem::replace(&mut self.is_failing, is_failing)
    }

    /// The longest lease that may be asked for at `now`.
    pub fn longest(&self, now: BootInstant) -> Duration {
        let held = self.held(now);
        let left = |max_hold: Duration| max_hold.saturating_sub(held);
        self.plan.max_hold.map_or(Duration::MAX, left)
    }

    /// Has the lease renewed no more.
    pub fn stop_renewing(&mut self) {
        self.renewal = Renewal::Never;
    }

    /// Has the lease renewed at `at` at the latest, if it is renewed at all.
    pub fn renew_by(&mut self, at: BootInstant) {
        if let Renewal::DueAt(due) = &mut self.renewal {
            *due = (*due).min(at);
        }
    }

    /// The holder gives the lock up: nothing is renewed from now on.
    ///
    /// # Errors
    ///
    /// It was lost before.
    pub fn give_up(&mut self, now: BootInstant, keeps: bool) -> Result<PendingRelease, Lost> {
        let lost = self.lost(now);
        if self.state == State::Held {
            self.state = State::GivenUp;
        }
        self.renewal = Renewal::Never;
        if let Some(lost) = lost {
            return Err(lost);
        }
        let release_after = self.plan.release_after.filter(|_| keeps);
        let keep_until = release_after.map(|time| self.granted_at + time);
        Ok(PendingRelease {
            deadline: self.deadline,
            may_be_done: false,
            // The shortest lease is 1 ms.
            keep_until: keep_until.filter(|until| *until - now >= Duration::from_millis(1)),
        })
    }

    /// When to renew a lease of this length that began at `start`. The server may have a longer one for this owner.
    fn next_renewal(&self, start: BootInstant, lease: Duration) -> Renewal {
        match self.bound {
            Bound::None => Renewal::DueAt(start + self.plan.renew_after.min(lease / 3)),
            Bound::Kept => Renewal::DueAt(start + lease / 3 * 2),
            Bound::MaxHold => Renewal::Never,
        }
    }

    /// The server may have a longer lease than was asked for: that of an earlier request that came late, for instance.
    fn within_max_hold(&self, deadline: BootInstant) -> BootInstant {
        let end = self.plan.max_hold.map(|time| self.granted_at + time);
        end.map_or(deadline, |end| end.min(deadline))
    }

    /// Why a hold is lost when its deadline has passed.
    fn expired(&self) -> Lost {
        match self.bound {
            Bound::MaxHold => Lost::MaxHold,
            Bound::None | Bound::Kept => Lost::LeaseExpired,
        }
    }

    fn lose(&mut self, lost: Lost) -> Action {
        self.state = State::Lost(lost);
        self.renewal = Renewal::Never;
        Action::NotifyLost(lost)
    }
}

fn retry_pause(left: Duration) -> Duration {
    (left / 20).clamp(MIN_RETRY_PAUSE, MAX_RETRY_PAUSE)
}

/// A release in progress, which may take several attempts.
///
/// A RELEASE with fence and request id is checked: `Ok` means that the owner held the lock until then, NOTHELD, NOTOWNER
/// and STALE that it did not. After an attempt without a reply, they may also mean that that attempt released the hold.
#[derive(Clone, Debug)]
pub(crate) struct PendingRelease {
    /// From then on the lease may have expired.
    deadline: BootInstant,
    /// Whether the server may have carried out an earlier attempt.
    may_be_done: bool,
    /// Instead of being released, the lock is kept until then.
    pub keep_until: Option<BootInstant>,
}

/// What to do after a reply to a release.
#[derive(Clone, Debug)]
pub(crate) enum ReleaseStep {
    /// Nothing: the owner held the lock until now, or did not.
    Done(Result<(), Error>),
    /// Send it again.
    Retry(Error),
}

impl PendingRelease {
    /// The reply to an attempt, or the error instead of it. Some connections resend requests by themselves: then a reply
    /// may be that to a second attempt.
    pub fn on_reply(&mut self, reply: Result<(), Error>, is_resent: bool, now: BootInstant) -> ReleaseStep {
        let Err(error) = reply else {
            return ReleaseStep::Done(Ok(()));
        };
        if let Some(lost) = error.lost() {
            self.may_be_done |= is_resent;
            // An extension that is repeated still means a loss.
            return ReleaseStep::Done(Err(match self.may_be_done && self.keep_until.is_none() {
                true => Error::Unconfirmed(Box::new(error)),
                false => Error::Lost(lost),
            }));
        }
        self.may_be_done |= error.is_ambiguous();
        match error.is_transient() && now < self.deadline {
            true => ReleaseStep::Retry(error),
            false => ReleaseStep::Done(Err(self.failed(error))),
        }
    }

    /// The outcome if there are no more attempts.
    pub fn failed(&self, last: Error) -> Error {
        match self.may_be_done {
            true => Error::Unconfirmed(Box::new(last)),
            false => last,
        }
    }

    /// Until when attempts make sense.
    pub fn deadline(&self) -> BootInstant {
        self.deadline
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod clock_tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// Set for the copy of a test in a time namespace: the time outside.
    const TIME_OUTSIDE: &str = "DLOCK_TEST_TIME_OUTSIDE_US";
    const SUSPENDED: Duration = Duration::from_secs(1_000_000);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn clock_is_monotonic() {
        let start = BootInstant::now();
        std::thread::sleep(ms(2));
        assert!(BootInstant::now() - start >= ms(2));
        assert_eq!(start - BootInstant::now(), Duration::ZERO);
    }

    #[test]
    fn safe_deadline_subtracts_drift_and_rounding() {
        let sent = BootInstant::after_boot(ms(1000));
        let cases = [
            // waited, lease, lasts for
            (ms(0), ms(30_000), ms(29_968)),
            (ms(500), ms(30_000), Duration::from_micros(30_467_500)),
            (ms(0), ms(1_000), ms(997)),
            (ms(0), ms(3), Duration::from_micros(997)),
            (ms(0), ms(2), ms(0)),
            (ms(0), ms(0), ms(0)),
        ];
        for (waited, lease, lasts) in cases {
            let deadline = safe_deadline(sent, waited, lease);
            assert_eq!(deadline - sent, lasts, "waited {waited:?}, lease {lease:?}");
            assert!(deadline >= sent);
        }
    }

    #[test]
    fn safe_deadline_saturates_for_the_longest_lease() {
        let sent = BootInstant::now();
        assert!(safe_deadline(sent, Duration::MAX, Duration::MAX) > sent);
        assert!(sent + Duration::MAX > sent);
    }

    fn since_boot() -> Duration {
        BootInstant::now() - BootInstant::after_boot(Duration::ZERO)
    }

    /// A test cannot suspend the machine, but it can enter a time namespace, in which only the clock that counts
    /// suspend is ahead, as it is after a suspend.
    #[test]
    fn clock_counts_suspend() {
        if let Ok(outside) = env::var(TIME_OUTSIDE) {
            let outside = Duration::from_micros(outside.parse().unwrap());
            assert!(since_boot() >= outside + SUSPENDED, "{:?}", since_boot());
            return;
        }
        let seconds = SUSPENDED.as_secs().to_string();
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--user", "--time", "--fork", "--boottime", &seconds]);
            command
        };
        let probe = unshare().arg("true").output();
        if !probe.is_ok_and(|output| output.status.success()) {
            return dlock_testkit::skip("cannot create a time namespace (unshare --user --time)");
        }
        let inside = unshare()
            .arg(env::current_exe().unwrap())
            .args(["--exact", "hold::clock_tests::clock_counts_suspend"])
            .env(TIME_OUTSIDE, since_boot().as_micros().to_string())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&inside.stdout);
        assert!(inside.status.success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
    }

    #[test]
    fn pause_doubles_up_to_its_maximum() {
        let mut backoff = Backoff::default();
        let mut due = FIRST_PAUSE;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(pause >= due / 2 && pause <= due, "{pause:?} of {due:?}");
            due = (due * 2).min(LONGEST_PAUSE);
        }
    }
}
