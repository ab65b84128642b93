//! For how long clients have been paused: meanwhile no inbox ends for want of a reader.

use crate::time::Instant;

/// Microseconds.
pub(super) type Elapsed = i64;

/// The pauses of clients, as far as the looks at them tell: rounded up to the time between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    looked: Option<Instant>,
    is_paused: bool,
    total: Elapsed,
}

impl Pauses {
    /// Takes note of whether clients are paused at `now`.
    pub(super) fn look(&mut self, is_paused: bool, now: Instant) {
        let looked = self.looked.replace(now).unwrap_or(now);
        let was_paused = std::mem::replace(&mut self.is_paused, is_paused);
        if is_paused || was_paused {
            let elapsed = now.as_micros().saturating_sub(looked.as_micros());
            self.total = self.total.saturating_add(elapsed);
        }
    }

    /// Whether clients are paused, as of the last look.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// How long clients have been paused in all.
    pub(super) fn total(&self) -> Elapsed {
        self.total
    }
}
