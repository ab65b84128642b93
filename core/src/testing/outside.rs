//! What the core learns from its shell.

use crate::fence::WallClock;
use crate::time::{Environment, Inputs, Instant, Role};

/// A wall clock and random bits.
pub struct Outside {
    pub wall_clock: WallClock,
    pub random: u64,
}

impl Outside {
    /// At that time, without random bits.
    pub const fn at_unix_ms(unix_ms: u64) -> Self {
        Self {
            wall_clock: WallClock::from_unix_ms(unix_ms),
            random: 0,
        }
    }

    /// The inputs of a primary with replicas, outside of a cluster.
    pub fn inputs(&self, now: Instant) -> Inputs<'_> {
        Inputs {
            now,
            role: Role::Primary,
            slot: None,
            must_encode: true,
            environment: self,
        }
    }
}

/// A time in 2025, so that fences have as many digits as real ones.
pub const IN_2025_UNIX_MS: u64 = 1_750_000_000_000;

static IN_2025: Outside = Outside::at_unix_ms(IN_2025_UNIX_MS);

/// The inputs of a primary in 2025.
pub fn inputs_at(now: Instant) -> Inputs<'static> {
    IN_2025.inputs(now)
}

impl Environment for Outside {
    fn wall_clock(&self) -> WallClock {
        self.wall_clock
    }

    fn random(&self) -> u64 {
        self.random
    }
}
