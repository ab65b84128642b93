//! When the fence counter advances other than by grants. Replicas and the log learn about it by a checkpoint.

use dlock_core::{AdvanceReason, Instant};

use crate::module::state::State;
use crate::redis::{clock, log};

/// Advances the counter after a promotion, and after a start when its grace has ended. Done at the first tick, and
/// before a grant that comes sooner.
pub fn advance_if_due(state: &mut State, now: Instant) {
    if state.engine.is_fence_advance_due(now) {
        let before = state.engine.fences.known();
        advance(state, now);
        let after = state.engine.fences.known();
        // The first start leaves it at 0: the clock is only a floor for the first grant.
        if after > before {
            log::notice(&format!(
                "start or promotion: the fence counter advanced from {before} to {after}"
            ));
        }
    }
}

/// Advances the counter at the first grant in a cluster slot that came to this node. A free lock has no key that could
/// migrate and bring its last fence along.
pub fn advance_for_slot(state: &mut State, slot: usize, now: Instant) {
    if state.raised_slots.insert(slot) {
        state.engine.fences.request_advance(AdvanceReason::Slot);
        advance(state, now);
    }
}

fn advance(state: &mut State, now: Instant) {
    let (clock, random) = (clock::wall_clock(), rand::random());
    state.engine.advance_fences_if_due(now, clock, random);
}
