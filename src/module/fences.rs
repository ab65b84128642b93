//! When the fence counter advances other than by grants. Replicas and the log learn about it by a checkpoint.

use dlock_core::AdvanceReason;

use crate::module::state::State;
use crate::redis::{clock, log};

/// Advances the counter after a start or a promotion. Done at the first tick, and before a grant that comes sooner.
pub fn advance_if_pending(state: &mut State) {
    if state.engine.fences.advance_pending() {
        let before = state.engine.fences.known();
        advance(state);
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
pub fn advance_for_slot(state: &mut State, slot: usize) {
    if state.raised_slots.insert(slot) {
        state.engine.fences.request_advance(AdvanceReason::Slot);
        advance(state);
    }
}

fn advance(state: &mut State) {
    let (clock, random) = (clock::wall_clock(), rand::random());
    state.engine.advance_fences_if_pending(clock, random);
}
