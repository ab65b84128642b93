//! Grants whose clients were gone before the reply: they are rolled back, so that the next waiter gets the lock.

use dlock_core::{Holds, Release, Undelivered};

use crate::background::gate::{GrantGate, RETRY_MS};
use crate::change::lock_change::{Cause, decide};
use crate::redis::{Ctx, Flags, RString};
use crate::state::clock::{self, Slice};
use crate::state::module_state::HasState;

/// Rolls back what can be written now, a slice of it. What cannot stays until its lease has ended.
pub fn roll_back_grants(ctx: &mut Ctx<'_>, flags: Flags, slice: &Slice) {
    let state = ctx.state();
    if state.rollback_not_before > clock::now() {
        return;
    }
    for _ in 0..state.server.inboxes.undelivered() {
        let Some(grant) = ctx.state().server.inboxes.next_undelivered() else {
            return;
        };
        let key = RString::new(&grant.name.key);
        let gate = if ctx.select_db(grant.name.db) {
            GrantGate::check(ctx, key.borrow(), flags)
        } else {
            GrantGate::Elsewhere(String::new())
        };
        let (state, now) = (ctx.state(), clock::now());
        let is_for_later = matches!(gate, GrantGate::Later | GrantGate::Unavailable(_));
        if is_for_later && grant.lease_end > now {
            state.server.inboxes.put_back(grant);
            state.rollback_not_before = now.after_ms(RETRY_MS);
        } else if state.server.inboxes.claim(&grant)
            && let GrantGate::Open = gate
        {
            roll_back(ctx, flags, &key, &grant);
        }
        if slice.is_over() {
            return;
        }
    }
}

fn roll_back(ctx: &mut Ctx<'_>, flags: Flags, key: &RString, grant: &Undelivered) {
    let id = grant.request_id.as_deref();
    let request = Release {
        owner: &grant.owner,
        fence: Some(grant.fence),
        holds: id.map_or(Holds::One, Holds::ById),
    };
    // A key of another type has no grant.
    let _ = decide(ctx, key.borrow(), flags, Cause::Timer, |transition| {
        transition.rollback_grant(&request);
        Ok(())
    });
}
