//! What the core learns from its shell.

use dlock_core::{Environment, Inputs, Instant, Role, WallClock};

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

impl Environment for Outside {
    fn wall_clock(&self) -> WallClock {
        self.wall_clock
    }

    fn random(&self) -> u64 {
        self.random
    }
}
