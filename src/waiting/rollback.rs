//! Grants whose clients were gone before the reply: they are rolled back, so that the next waiter gets the lock.

use dlock_core::{Acquire, Holds, Instant, Release};

use crate::module::stats::add;
use crate::redis::{Ctx, Flags, RString, clock};
use crate::txn::Txn;
use crate::waiting::clients::UndeliveredGrant;
use crate::waiting::gate::{GrantGate, RETRY_MS};

/// Rolls back what can be written now, a slice of it.
pub fn roll_back_grants(ctx: &mut Ctx<'_>, flags: Flags, slice_end: Instant) {
    let state = ctx.state();
    if state.rollback_not_before > clock::now() {
        return;
    }
    for _ in 0..state.grants_to_roll_back.len() {
        let Some(grant) = ctx.state().grants_to_roll_back.pop_front() else {
            return;
        };
        if !ctx.select_db(grant.name.db) {
            continue;
        }
        let key = RString::new(&grant.name.key);
        match GrantGate::check(ctx, key.borrow(), flags) {
            GrantGate::Open => roll_back(ctx, flags, &grant),
            GrantGate::Elsewhere(_) => {}
            GrantGate::Later => {
                let state = ctx.state();
                state.grants_to_roll_back.push_back(grant);
                state.rollback_not_before = clock::now().after_ms(RETRY_MS);
            }
        }
        if clock::now() >= slice_end {
            return;
        }
    }
}

fn roll_back(ctx: &mut Ctx<'_>, flags: Flags, grant: &UndeliveredGrant) {
    let key = RString::new(&grant.name.key);
    // A key of another type has no grant.
    let Ok(mut txn) = Txn::timer(ctx, key.borrow(), flags) else {
        return;
    };
    let request = Release {
        owner: &grant.owner,
        fence: Some(grant.fence),
        holds: grant.request_id.as_deref().map_or(Holds::One, Holds::ById),
    };
    let rolled_back = txn.rollback_grant(&request);
    if let Ok(true) = txn.commit(Ok(rolled_back)) {
        add(&mut ctx.state().counters.grants_rolled_back);
    }
}

/// A client has the hold of this request id, whatever becomes of other clients that asked for it. Called after the
/// transition, which may have granted it to one of them, and before the server can find that client gone.
pub fn cancel_rollback(ctx: &mut Ctx<'_>, key: &[u8], request: &Acquire<'_>) {
    let Some(id) = request.request_id else { return };
    let state = ctx.state();
    if state.grants_to_roll_back.is_empty() && !state.clients.has_in_flight() {
        return;
    }
    let db = ctx.db();
    let state = ctx.state();
    state.clients.mark_delivered(db, key, request.owner, id);
    state
        .grants_to_roll_back
        .retain(|grant| !grant.is_for(db, key, request.owner, id));
}
