//! What the core wants to know of this server before it decides.

use dlock_core::{Environment, Inputs, Role, WallClock};

use crate::redis::Flags;
use crate::state::clock;

/// The clock is read here, once for each decision.
pub fn inputs(flags: Flags, slot: Option<usize>, must_encode: bool) -> Inputs<'static> {
    Inputs {
        now: clock::now(),
        role: role(flags),
        slot,
        must_encode,
        environment: &Process,
    }
}

pub fn role(flags: Flags) -> Role {
    if flags.is_loading() {
        Role::Loading
    } else if flags.is_primary() {
        Role::Primary
    } else {
        Role::Replica
    }
}

/// Wall clock and randomness of this process.
struct Process;

impl Environment for Process {
    fn wall_clock(&self) -> WallClock {
        clock::wall_clock()
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}
