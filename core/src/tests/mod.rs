//! Tests of the core as a whole.
//!
//! ```text
//! ops            requests, replies and views: what core and model are compared by
//! naive          the model: locks with queues by the letter of the contract, without optimizations
//! schedule       random schedules: requests, disconnects, time, and events of locks and of the server
//! subject        the core as a server; checks the invariants after every transition
//! invariants     what must be true after every transition, whatever was requested
//! pair           core and model side by side
//! dsl            for tests by example
//!
//! rules          the contract of one lock by example, to be read
//! queue_rules    the contract of waiters by example
//! inbox_rules    the contract of waiting through inboxes by example
//! deadlocks      requests that could never be granted, and the cost of finding them
//! against_model  random schedules, core and model side by side
//! replay         what is replicated gives the same state: on lagging replicas, from the AOF, after a promotion
//! exhaustive     every reachable state of small locks, with and without queues
//! scaling        many holders in one transition: the work is linear in their number
//! codec          the encoding: nothing is lost, nothing unsound is accepted
//! ```

mod against_model;
mod codec;
mod deadlocks;
mod dsl;
#[cfg(not(miri))] // Millions of states.
mod exhaustive;
mod inbox_rules;
mod invariants;
mod naive;
mod ops;
mod pair;
mod queue_rules;
mod replay;
mod rules;
#[cfg(not(miri))] // Measures time.
mod scaling;
mod schedule;
mod subject;

use crate::fence::WallClock;
use crate::inputs::{Environment, Inputs, Role};
use crate::request::{Timeout, Wait};
use crate::time::Instant;

/// A wall clock in 2025, so that fences have as many bytes as real ones.
const WALL_CLOCK: WallClock = WallClock::from_unix_ms(1_750_000_000_000);

struct Fixed;

impl Environment for Fixed {
    fn wall_clock(&self) -> WallClock {
        WALL_CLOCK
    }

    fn random(&self) -> u64 {
        0
    }
}

/// BLOCK with this timeout.
fn block(timeout: Timeout) -> Option<Wait<'static>> {
    Some(Wait { timeout, inbox: None })
}

/// The inputs of a primary with replicas, outside of a cluster.
fn inputs_at(now: Instant) -> Inputs<'static> {
    Inputs {
        now,
        role: Role::Primary,
        slot: None,
        must_encode: true,
        environment: &Fixed,
    }
}
