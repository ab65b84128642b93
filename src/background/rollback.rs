//! Grants whose clients were gone before the reply: they are rolled back, so that the next waiter gets the lock.

use dlock_core::{Acquire, Holds, Instant, Release};

use crate::background::gate::{GrantGate, RETRY_MS};
use crate::change::txn::Txn;
use crate::redis::{Ctx, Flags, RString, clock};
use crate::state::clients::UndeliveredGrant;
use crate::state::counters::add;

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
        let name = &grant.client.name;
        let key = RString::new(&name.key);
        let gate = if ctx.select_db(name.db) {
            GrantGate::check(ctx, key.borrow(), flags)
        } else {
            GrantGate::Elsewhere(String::new())
        };
        if let GrantGate::Later = gate {
            let state = ctx.state();
            state.grants_to_roll_back.push_back(grant);
            state.rollback_not_before = clock::now().after_ms(RETRY_MS);
        } else if ctx.state().clients.claim(&grant.client)
            && let GrantGate::Open = gate
        {
            roll_back(ctx, flags, &key, &grant);
        }
        if clock::now() >= slice_end {
            return;
        }
    }
}

fn roll_back(ctx: &mut Ctx<'_>, flags: Flags, key: &RString, grant: &UndeliveredGrant) {
    let UndeliveredGrant { client, fence } = grant;
    // A key of another type has no grant.
    let Ok(mut txn) = Txn::timer(ctx, key.borrow(), flags) else {
        return;
    };
    let request = Release {
        owner: &client.owner,
        fence: Some(*fence),
        holds: client.request_id.as_deref().map_or(Holds::One, Holds::ById),
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
    if ctx.state().clients.has_in_flight() {
        let db = ctx.db();
        ctx.state().clients.mark_delivered(db, key, request.owner, id);
    }
}
