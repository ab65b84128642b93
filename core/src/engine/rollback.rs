//! Grants whose clients were gone before the reply: they are rolled back, so that the next waiter gets the lock.

use super::gate::{self, RETRY_MS};
use super::host::{Flags, Host, WriteCheck};
use super::lock_change::{Cause, decide};
use super::pass::Slice;
use crate::inbox::Undelivered;
use crate::wire::{Holds, Release};

/// Rolls back what can be written now, a slice of it. What cannot stays until its lease has ended.
pub(super) fn roll_back_grants<H: Host>(host: &mut H, flags: Flags, slice: &Slice) {
    let now = host.now();
    let state = host.state();
    if state.rollback_not_before > now {
        return;
    }
    for _ in 0..state.server.inboxes.undelivered() {
        let Some(grant) = host.state().server.inboxes.next_undelivered() else {
            return;
        };
        let key = H::make_name(&grant.name.key);
        let check = if host.select_db(grant.name.db) {
            gate::check(host, H::name(&key), flags)
        } else {
            WriteCheck::Elsewhere(String::new())
        };
        let now = host.now();
        let state = host.state();
        let is_for_later = matches!(
            check,
            WriteCheck::Later | WriteCheck::Refused | WriteCheck::Unavailable(_)
        );
        if is_for_later && grant.lease_end > now {
            state.server.inboxes.put_back(grant);
            state.rollback_not_before = now.after_ms(RETRY_MS);
        } else if state.server.inboxes.claim(&grant) && check == WriteCheck::Accepted {
            roll_back(host, flags, H::name(&key), &grant);
        }
        if slice.is_over(host) {
            return;
        }
    }
}

fn roll_back<H: Host>(host: &mut H, flags: Flags, key: H::Name<'_>, grant: &Undelivered) {
    let id = grant.request_id.as_deref();
    let request = Release {
        owner: &grant.owner,
        fence: Some(grant.fence),
        holds: id.map_or(Holds::One, Holds::ById),
    };
    // A key of another type has no grant.
    let _ = decide(host, key, flags, Cause::Timer, |transition| {
        transition.rollback_grant(&request);
        Ok(())
    });
}
