//! How much is measured, and in which order.

use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// For publication.
    Full,
    /// To see whether a change matters.
    Quick,
    /// For tests: whether there is a figure at all.
    Smoke,
}

impl Scale {
    pub fn rounds(self, full: usize) -> usize {
        if self == Self::Full { full } else { 1 }
    }

    /// Keys, waiters, repetitions.
    pub fn count(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full / 10,
            Self::Smoke => (full / 500).max(10),
        }
    }

    /// How long a rate or a latency is measured: a pause of 250 ms of the machine must not decide it.
    pub fn window(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(5),
            Self::Quick => Duration::from_millis(400),
            Self::Smoke => Duration::from_millis(60),
        }
    }
}

/// Rounds in which `count` implementations take turns: each round begins with another one. Pairs of round and index.
pub fn turns(rounds: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| (0..count).map(move |turn| (round, (round + turn) % count)))
}

/// Passes over `count` implementations until the time is over, at least one: indices.
pub fn passes(duration: Duration, count: usize) -> impl Iterator<Item = usize> {
    let end = Instant::now() + duration;
    let passes = (0..).take_while(move |pass| *pass == 0 || Instant::now() < end);
    passes.flat_map(move |pass| (0..count).map(move |turn| (pass + turn) % count))
}
