//! When the fence counter advances other than by grants. Replicas and the AOF get it as a checkpoint, and the
//! other nodes of a cluster by an announcement.

use dlock_core::Instant;
use dlock_core::cluster_fences::{Announcement, NodeId};

use crate::redis::{Ctx, clock, log};
use crate::state::config;
use crate::state::module_state::State;

/// Advances the counter after a promotion, and after a start when its grace period has ended: in the first tick, or
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

/// Before a grant in a cluster slot: its last fence may be that of another node.
pub fn claim_slot(state: &mut State, slot: usize, now: Instant) {
    let clock = clock::wall_clock();
    let fences = &mut state.engine.fences;
    if state
        .cluster_fences
        .claim(slot, &state.local_slots.settled, fences, clock, now)
    {
        state.engine.checkpoint_due = true;
    }
}

/// Sends the other nodes of the cluster what they must know about the fences of this one. `periodic`: in any case.
pub fn announce(ctx: &mut Ctx<'_>, periodic: bool) {
    let State {
        cluster_fences,
        engine,
        ..
    } = ctx.state();
    if let Some(announcement) = cluster_fences.announce(&engine.fences, periodic, clock::now()) {
        ctx.broadcast(&announcement.encode());
    }
}

/// Another node has sent such a message.
pub fn receive(state: &mut State, sender: NodeId, message: &[u8]) {
    let Some(announcement) = Announcement::decode(message) else {
        return;
    };
    let (clock, now) = (clock::wall_clock(), clock::now());
    let State {
        cluster_fences,
        engine,
        ..
    } = state;
    cluster_fences.receive(sender, &announcement, &engine.fences, clock, now);
}

/// Follows `dlock.quorum`. At load, and whenever a setting changes.
pub fn refresh_quorum(ctx: &mut Ctx<'_>) {
    ctx.state().engine.fences.set_quorum(config::quorum());
}

/// The largest MINFENCE that is accepted, if this is a server of a quorum.
pub fn max_min_fence(state: &State) -> Option<u64> {
    let startup_grace = config::graces().startup;
    config::quorum().then(|| state.engine.max_min_fence(clock::wall_clock(), startup_grace))
}

fn advance(state: &mut State, now: Instant) {
    let (clock, random) = (clock::wall_clock(), rand::random());
    state.engine.advance_fences_if_due(now, clock, random);
}
