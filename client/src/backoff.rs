//! Pauses before attempts.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// Exponential backoff with jitter.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Self {
        Self { next: FIRST }
    }

    /// The next pause: 50 to 100 % of the interval.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_its_maximum() {
        let mut backoff = Backoff::new();
        let mut due = FIRST;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(pause >= due / 2 && pause <= due, "{pause:?} of {due:?}");
            due = (due * 2).min(LONGEST);
        }
    }
}
