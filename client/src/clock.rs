//! Time as leases need it: a clock that goes on while the machine sleeps, and deadlines on the safe side.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point of time on a clock that only goes forward, also while the machine is suspended, and that nobody
/// sets. Only meaningful within one boot of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant {
    since_boot_us: u64,
}

/// Counts suspend. The monotonic clock of Linux does not, that of macOS does (but not the one that the standard
/// library takes there).
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

impl BootInstant {
    /// Now.
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        // Neither is negative: the clock counts from the boot.
        Self {
            since_boot_us: now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000,
        }
    }

    /// A moment as far from the beginning of the clock, for tests that bring their own time.
    pub fn after_boot(time: Duration) -> Self {
        Self {
            since_boot_us: whole_us(time),
        }
    }

    /// For how long it has been later than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.since_boot_us.saturating_sub(earlier.since_boot_us))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    /// Later by `time`; a time without end gives the end of the clock.
    fn add(self, time: Duration) -> Self {
        Self {
            since_boot_us: self.since_boot_us.saturating_add(whole_us(time)),
        }
    }
}

/// Until when a lease certainly lasts, for the holder that sent its request at `sent` and was told that it
/// had been queued for `waited` and that `lease` remained: `sent + (waited + lease) * 0.999 - 2 ms`.
///
/// The server's clock may go 0.1 % faster than ours, and no more is allowed for: one that is being slewed can be
/// faster (chronyd may slew by 8 %, unless its `maxslewrate` is lowered). Nor does any clock here count the time for
/// which a hypervisor freezes the machine. Only a resource that checks fences is safe against that.
///
/// Both times that the server told are rounded down. A lease that is too short for all this certainly lasts until `sent`,
/// which is over.
pub fn safe_deadline(sent: BootInstant, waited: Duration, lease: Duration) -> BootInstant {
    const ROUNDING: Duration = Duration::from_millis(2);
    let told = waited.saturating_add(lease);
    let drift = Duration::from_micros(whole_us(told).div_ceil(1000));
    sent + told.saturating_sub(drift).saturating_sub(ROUNDING)
}

fn whole_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_clock_goes_forward() {
        let start = BootInstant::now();
        std::thread::sleep(ms(2));
        assert!(BootInstant::now().since(start) >= ms(2));
        assert_eq!(start.since(BootInstant::now()), Duration::ZERO);
    }

    #[test]
    fn a_safe_deadline_takes_off_drift_and_rounding() {
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
            assert_eq!(deadline.since(sent), lasts, "waited {waited:?}, lease {lease:?}");
            assert!(deadline >= sent);
        }
    }

    #[test]
    fn the_longest_times_neither_wrap_around_nor_panic() {
        let sent = BootInstant::now();
        assert!(safe_deadline(sent, Duration::MAX, Duration::MAX) > sent);
        assert!(sent + Duration::MAX > sent);
    }
}
