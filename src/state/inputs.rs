//! What the core wants to know of this server before it decides.

use dlock_core::{Environment, Inputs, Role, WallClock};

use crate::redis::Flags;
use crate::state::clock;

/// The clock is read here, once for each command.
pub fn inputs(flags: Flags, slot: Option<usize>, has_consumers: bool) -> Inputs<'static> {
    Inputs {
        now: clock::now(),
        role: role(flags),
        slot,
        has_consumers,
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
