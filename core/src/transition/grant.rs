use super::acquire::{above_holders, add_hold, granted};
use super::{Occupancy, Step, expire_holders};
use crate::context::TransitionContext;
use crate::effects::Effects;
use crate::error::Error;
use crate::lock::Holder;
use crate::queue::{Queue, Waiter};
use crate::ticket::Ticket;

impl Step<'_> {
    pub(super) fn on_timer(&mut self) {
        self.time_out_waiters();
        self.expire_holders();
        self.grant_waiters();
    }

    fn time_out_waiters(&mut self) {
        while let Some(ticket) = self.queue.remove_timed_out(self.cx.now) {
            self.effects.timed_out(ticket);
        }
    }

    /// Grants the lock to the first waiters, in order, as far as the grant rule allows.
    #[inline]
    pub(super) fn grant_waiters(&mut self) {
        if !self.queue.is_empty() && self.cx.grace_left_ms().is_none() {
            self.grant_first_waiters();
        }
    }

    fn grant_first_waiters(&mut self) {
        let cx = self.cx;
        self.time_out_waiters();
        self.reenter_holders();
        let mut occupancy = Occupancy::of(self.lock, cx);
        while let Some((ticket, waiter)) = self.queue.first() {
            if cx.evictable {
                self.reject_waiter(ticket, Error::Evictable);
                continue;
            }
            let with_waiter = occupancy.with(waiter.limit);
            if !with_waiter.is_within_limit() {
                return;
            }
            let min_fence = above_holders(waiter.min_fence, self.lock, cx);
            let Some(fence) = self.fences.next_fence(self.name, min_fence) else {
                self.reject_waiter(ticket, Error::FencesUsedUp);
                continue;
            };
            // Before the first grant: no lease expires during a transition.
            if occupancy.holders < self.lock.holders().len() {
                expire_holders(self.lock, cx, self.effects);
            }
            let lease_end = cx.now.after_ms(waiter.lease_ms);
            let mut holder = Holder::new(&waiter.owner, waiter.limit, fence, cx.now, lease_end);
            grant_requests(self.queue, &mut holder, cx, self.effects);
            self.effects.acquired(&holder, cx);
            self.lock.push(holder);
            occupancy = with_waiter;
        }
    }

    fn reject_waiter(&mut self, ticket: Ticket, error: Error) {
        self.queue.remove(ticket);
        self.effects.refused(ticket, error);
    }

    /// Waiting owners that became holders without this queue (RENAME, RESTORE) re-enter.
    fn reenter_holders(&mut self) {
        let cx = self.cx;
        let waits = |holder: &Holder| cx.is_live(holder) && self.queue.has(holder.owner());
        if !self.lock.holders().iter().any(waits) {
            return;
        }
        // A change lists removals before holders.
        self.expire_holders();
        for holder in self.lock.holders_mut() {
            if self.queue.has(holder.owner()) {
                let holds = holder.holds();
                grant_requests(self.queue, holder, cx, self.effects);
                if holder.holds() > holds {
                    self.effects.updated(holder, cx);
                }
            }
        }
    }
}

/// Gives a holder a hold for each of its waiting requests. Requests with a stricter limit are rejected.
fn grant_requests(queue: &mut Queue, holder: &mut Holder, cx: &TransitionContext, effects: &mut Effects) {
    let Some(tickets) = queue.remove_owner(holder.owner()) else {
        return;
    };
    for (ticket, ()) in tickets {
        let Some(waiter) = queue.remove_only(ticket) else {
            debug_assert!(false, "an owner's ticket without a waiter");
            continue;
        };
        match grant_request(&waiter, holder, cx) {
            Ok(()) => {
                let waited_ms = waiter.since.ms_until(cx.now);
                effects.granted(ticket, granted(holder, cx, waited_ms));
            }
            Err(error) => effects.refused(ticket, error),
        }
    }
}

fn grant_request(waiter: &Waiter, holder: &mut Holder, cx: &TransitionContext) -> Result<(), Error> {
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
