//! A clock that counts suspend, safe deadlines on it, and pauses between attempts.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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
        let now = clock_gettime(CLOCK);
        // Neither is negative: the clock starts at boot.
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
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

/// When a lease may have expired, by a reply to a request that was sent at `sent`: see
/// [`Grant::safe_deadline`](crate::Grant::safe_deadline).
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
    /// The next pause: 50 to 100 % of the interval.
    pub fn pause(&mut self) -> Duration {
        // More would overflow, and is longer than the longest.
        let doubled = FIRST_PAUSE * (1 << self.attempts.min(10));
        self.attempts = self.attempts.saturating_add(1);
        doubled.min(LONGEST_PAUSE).mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
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
            eprintln!("skipped: cannot create a time namespace (unshare --user --time)");
            return;
        }
        let inside = unshare()
            .arg(env::current_exe().unwrap())
            .args(["--exact", "clock::tests::clock_counts_suspend"])
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
