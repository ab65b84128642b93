//! The fence to ask for: a guess, by the slowest of the servers' own clocks. Any guess is safe, as only fences that a
//! majority has replied are handed out; a good one makes the grants of all servers agree. Pure.

use std::time::Duration;

/// Fences start at the server's wall clock: this many for each millisecond since the beginning of 2024.
const FENCES_PER_MS: u64 = 2048;
const EPOCH_UNIX_MS: u64 = 1_704_067_200_000;

/// What is known of the clocks, on a clock of this process that counts suspend.
pub(crate) struct Clocks {
    samples: Vec<Option<Sample>>,
    /// The largest fence that was handed out.
    handed_out: u64,
}

/// A lower bound of the clock of a server.
#[derive(Clone, Copy)]
struct Sample {
    unix_ms: u64,
    /// When the reply arrived.
    at: Duration,
}

impl Sample {
    fn now(&self, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.at);
        // The server's clock runs as slow as this.
        self.unix_ms + (passed - passed / 1000).as_millis() as u64
    }
}

impl Clocks {
    pub fn new(servers: usize) -> Self {
        Self {
            samples: vec![None; servers],
            handed_out: 0,
        }
    }

    /// A server has told the time, in a reply that has arrived now.
    pub fn on_time(&mut self, server: usize, unix_ms: u64, now: Duration) {
        let Some(known) = self.samples.get_mut(server) else {
            return;
        };
        let known_ms = known.map_or(0, |sample| sample.now(now));
        *known = Some(Sample {
            unix_ms: unix_ms.max(known_ms),
            at: now,
        });
    }

    /// A server accepts no such fence: its clock was set back.
    pub fn forget(&mut self, server: usize) {
        if let Some(known) = self.samples.get_mut(server) {
            *known = None;
        }
    }

    pub fn on_handed_out(&mut self, fence: u64) {
        self.handed_out = self.handed_out.max(fence);
    }

    /// The smallest fence to ask these servers for.
    pub fn guess(&self, now: Duration, is_asked: impl Fn(usize) -> bool) -> u64 {
        let asked = self
            .samples
            .iter()
            .enumerate()
            .filter(|(server, _)| is_asked(*server));
        let slowest: Option<Option<u64>> = asked
            .map(|(_, sample)| sample.map(|sample| sample.now(now)))
            .min();
        let Some(Some(unix_ms)) = slowest else {
            // Without the clock of one of them.
            return self.handed_out.max(1);
        };
        // Servers read their clock in whole milliseconds.
        let ms = unix_ms.saturating_sub(EPOCH_UNIX_MS + 1);
        ms.saturating_mul(FENCES_PER_MS).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn guess_is_the_slowest_clock_of_those_asked_less_a_millisecond() {
        let mut clocks = Clocks::new(3);
        for (server, clock) in [5_000, 3_000, 4_000].into_iter().enumerate() {
            clocks.on_time(server, EPOCH_UNIX_MS + clock, ms(100));
        }
        assert_eq!(clocks.guess(ms(100), |_| true), 2_999 * 2048);
        assert_eq!(clocks.guess(ms(100), |server| server != 1), 3_999 * 2048);
        // It goes on, a little slower than this clock.
        assert_eq!(clocks.guess(ms(1_100), |_| true), 3_998 * 2048);
    }

    #[test]
    fn without_a_clock_the_guess_is_the_largest_fence_that_was_handed_out() {
        let mut clocks = Clocks::new(2);
        assert_eq!(clocks.guess(ms(0), |_| true), 1);
        clocks.on_time(0, EPOCH_UNIX_MS + 1_000, ms(0));
        clocks.on_handed_out(77);
        clocks.on_handed_out(42);
        assert_eq!(clocks.guess(ms(0), |_| true), 77);
        clocks.on_time(1, EPOCH_UNIX_MS + 2_000, ms(0));
        assert_eq!(clocks.guess(ms(0), |_| true), 999 * 2048);
        clocks.forget(1);
        assert_eq!(clocks.guess(ms(0), |_| true), 77);
    }

    #[test]
    fn later_sample_never_takes_the_clock_back() {
        let mut clocks = Clocks::new(1);
        clocks.on_time(0, EPOCH_UNIX_MS + 9_000, ms(0));
        clocks.on_time(0, EPOCH_UNIX_MS + 5_000, ms(0));
        assert_eq!(clocks.guess(ms(0), |_| true), 8_999 * 2048);
    }
}
