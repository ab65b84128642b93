use super::{Occupancy, TransitionContext, expire_holders};
use crate::effects::Effects;
use crate::error::Error;
use crate::fence::Fences;
use crate::lock::{Holder, Lock};
use crate::queue::{Queue, Waiter};
use crate::transition::acquire::{add_hold, granted};

/// Looks after a lock when nobody asks for it: whose time is up, whose lease has ended, who can be let in.
pub fn on_timer(
    lock: &mut Lock,
    queue: &mut Queue,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) {
    time_out_waiters(queue, cx, effects);
    expire_holders(lock, cx, effects);
    grant_waiters(lock, queue, cx, fences, effects);
}

/// Answers the waiters whose time is up.
pub fn time_out_waiters(queue: &mut Queue, cx: &TransitionContext, effects: &mut Effects) {
    while let Some(ticket) = queue.first_expired(cx.now) {
        queue.remove(ticket);
        effects.timed_out(ticket);
    }
}

/// Lets in the first waiters, in order, as far as the grant rule allows.
pub(super) fn grant_waiters(
    lock: &mut Lock,
    queue: &mut Queue,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) {
    if queue.is_empty() || cx.grace_left_ms().is_some() {
        return;
    }
    time_out_waiters(queue, cx, effects);
    reenter_holders(lock, queue, cx, effects);
    let mut occupancy = Occupancy::of(lock, cx);
    while let Some((ticket, waiter)) = queue.first() {
        if cx.evictable {
            queue.remove(ticket);
            effects.refused(ticket, Error::Evictable);
            continue;
        }
        let with_waiter = occupancy.with(waiter.limit);
        if !with_waiter.is_within_limit() {
            return;
        }
        let Some(fence) = fences.next_fence() else {
            queue.remove(ticket);
            effects.refused(ticket, Error::FencesUsedUp);
            continue;
        };
        // Before the first grant: no lease ends during a step.
        if occupancy.holders < lock.holders().len() {
            expire_holders(lock, cx, effects);
        }
        let lease_end = cx.now.after_ms(waiter.lease_ms);
        let mut holder = Holder::new(&waiter.owner, waiter.limit, fence, cx.now, lease_end);
        grant_all(queue, &mut holder, cx, effects);
        effects.acquired(&holder, cx);
        lock.push(holder);
        occupancy = with_waiter;
    }
}

/// An owner that came to hold the lock by other ways than this queue (RENAME, RESTORE) re-enters.
fn reenter_holders(lock: &mut Lock, queue: &mut Queue, cx: &TransitionContext, effects: &mut Effects) {
    let waits = |holder: &Holder| cx.is_live(holder) && queue.has(holder.owner());
    if !lock.holders().iter().any(waits) {
        return;
    }
    // Departures stand before holders in a change.
    expire_holders(lock, cx, effects);
    for holder in lock.holders_mut() {
        if queue.has(holder.owner()) {
            let holds = holder.holds();
            grant_all(queue, holder, cx, effects);
            if holder.holds() > holds {
                effects.updated(holder, cx);
            }
        }
    }
}

/// Gives a holder a hold for each of its waiting requests. Those that want a stricter limit are refused.
fn grant_all(queue: &mut Queue, holder: &mut Holder, cx: &TransitionContext, effects: &mut Effects) {
    let Some(requests) = queue.remove_owner(holder.owner()) else {
        return;
    };
    for ticket in requests.iter() {
        let Some(waiter) = queue.remove_only(ticket) else {
            continue;
        };
        match grant_one(&waiter, holder, cx) {
            Ok(()) => {
                let waited_ms = waiter.since.ms_until(cx.now);
                effects.granted(ticket, granted(holder, cx, waited_ms));
            }
            Err(error) => effects.refused(ticket, error),
        }
    }
}

fn grant_one(waiter: &Waiter, holder: &mut Holder, cx: &TransitionContext) -> Result<(), Error> {
    if waiter.limit < holder.limit {
        return Err(Error::Upgrade(holder.limit));
    }
    if waiter
        .request_id
        .as_deref()
        .is_some_and(|id| holder.has_request_id(id))
    {
        return Ok(());
    }
    add_hold(holder, waiter.request_id.as_deref())?;
    holder.lease_end = cx.extended_lease_end(holder, waiter.lease_ms);
    Ok(())
}
