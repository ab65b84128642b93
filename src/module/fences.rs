//! When the counter of fences is raised.

use crate::module::state;
use crate::redis::ctx;

/// Raises the counter, if that is due: after a start or a promotion, or because a cluster slot came here. Done
/// at the first tick, and before a grant that comes sooner. Replicas and the log are told.
pub fn raise() {
    if state::with(|state| state.fences.advance_pending()) {
        let (clock, random) = (ctx::wall_clock(), rand::random());
        state::with(|state| {
            state.fences.advance(clock, random);
            state.schedule.sync_due = true;
        });
    }
}
