//! Inboxes: calls whose time is over, inboxes that nobody reads any more, and what they leave.

use crate::change::readers;
use crate::redis::Ctx;
use crate::state::clock::{self, Slice};
use crate::state::module_state::HasState;
use crate::state::wait_timer;

const SLICE_MS: u64 = 2;
/// How many waiters leave between two looks at the clock.
const STEPS: usize = 32;

/// Processes what is due, a slice of it. The grants that it gives up are rolled back with the queues.
pub fn process(ctx: &mut Ctx<'_>) {
    let is_paused = ctx.is_paused();
    let calls = ctx.state().server.process_inboxes(is_paused, clock::now());
    for call in calls {
        readers::wake(ctx, call);
    }
    let slice = Slice::of_ms(SLICE_MS);
    let server = &mut ctx.state().server;
    while (0..STEPS).all(|_| server.clear_ended()) && !slice.is_over() {}
    wait_timer::arm(ctx);
}
