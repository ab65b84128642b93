//! Inboxes: calls whose time is over, inboxes that nobody reads any more, and what they leave.

use dlock_core::InboxStep;

use crate::background::pass::Pass;
use crate::change::readers;
use crate::redis::Ctx;
use crate::state::clock;
use crate::state::module_state::HasState;
use crate::state::wait_timer;

const SLICE_MS: u64 = 1;
/// The steps between two looks at the clock.
const STEPS: usize = 32;

/// Processes what is due, a slice of it. The grants that it gives up are rolled back with the queues.
pub fn process(ctx: &mut Ctx<'_>, pass: &Pass) {
    let (is_paused, now) = (ctx.is_paused(), clock::now());
    ctx.state().server.inboxes.look_at_pauses(is_paused, now);
    let slice = pass.slice(SLICE_MS);
    while (0..STEPS).all(|_| step(ctx)) && !slice.is_over() {}
    wait_timer::arm(ctx);
}

/// False if nothing is due any more.
fn step(ctx: &mut Ctx<'_>) -> bool {
    let now = clock::now();
    match ctx.state().server.process_inboxes(now) {
        Some(InboxStep::Reply(call)) => readers::wake(ctx, call),
        Some(InboxStep::Leave(..) | InboxStep::Done) => {}
        None => return false,
    }
    true
}
