//! Whether releases are so fast that those which a majority does not need are deferred.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::releases::DEFERRAL;

/// One release in as many is sent to all servers at once. The other releases go first to the servers that had granted the
/// lock when it was handed out, whose grants the next holder then has first: so those stay, even if others are faster.
const AT_ONCE_EVERY: u32 = 15;

/// What the last releases on some servers took.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many in a row have taken less than a deferral would.
    fast: AtomicU32,
}

impl Pace {
    pub fn defers(&self) -> bool {
        !self.fast.load(Ordering::Relaxed).is_multiple_of(AT_ONCE_EVERY)
    }

    pub fn on_released(&self, took: Duration) {
        if took < DEFERRAL {
            self.fast.fetch_add(1, Ordering::Relaxed);
        } else {
            self.fast.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(200);

    #[test]
    fn releases_after_a_fast_one_are_deferred_but_for_one_in_fifteen() {
        let pace = Pace::default();
        let deferred = (0..30).filter(|_| {
            let defers = pace.defers();
            pace.on_released(FAST);
            defers
        });
        assert_eq!(deferred.count(), 28);
    }

    #[test]
    fn release_after_a_slow_one_is_not_deferred() {
        let pace = Pace::default();
        assert!(!pace.defers(), "nothing is known yet");
        pace.on_released(FAST);
        assert!(pace.defers());
        pace.on_released(DEFERRAL);
        assert!(!pace.defers());
    }
}
