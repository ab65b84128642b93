use super::rules::{Occupancy, Rules, above_holders, add_hold, expire_holders, granted};
use crate::effects::{Answer, Effects};
use crate::error::Error;
use crate::lease_clock::LeaseClock;
use crate::lock::Holder;
use crate::queue::{Queue, Waiter};
use crate::ticket::Ticket;

impl Rules<'_> {
    pub(super) fn on_timer(&mut self) {
        self.time_out_waiters();
        self.expire_holders();
        self.grant_waiters();
    }

    fn time_out_waiters(&mut self) {
        while let Some(ticket) = self.queue.remove_timed_out(self.clock.now) {
            self.effects.wake(ticket, Answer::TimedOut);
        }
    }

    /// Grants the lock to the first waiters, in order, as far as the grant rule allows.
    #[inline]
    pub(super) fn grant_waiters(&mut self) {
        if !self.queue.is_empty() && self.clock.grace_left_ms().is_none() {
            self.grant_first_waiters();
        }
    }

    fn grant_first_waiters(&mut self) {
        let clock = self.clock;
        self.time_out_waiters();
        self.reenter_holders();
        let mut occupancy = Occupancy::of(self.lock, clock);
        while let Some((ticket, waiter)) = self.queue.first() {
            if self.evictable {
                self.reject_waiter(ticket, Error::Evictable);
                continue;
            }
            let with_waiter = occupancy.with(waiter.limit);
            if !with_waiter.is_within_limit() {
                return;
            }
            let min_fence = above_holders(waiter.min_fence, self.lock, clock);
            let Some(fence) = self.fences.next_fence(self.name, min_fence) else {
                self.reject_waiter(ticket, Error::FencesUsedUp);
                continue;
            };
            // Before the first grant: no lease expires during a transition.
            if occupancy.holders < self.lock.holders().len() {
                expire_holders(self.lock, clock, self.effects);
            }
            let lease_end = clock.now.after_ms(waiter.lease_ms);
            let mut holder = Holder::new(&waiter.owner, waiter.limit, fence, clock.now, lease_end);
            grant_requests(self.queue, &mut holder, clock, self.effects);
            self.effects.acquired(&holder, clock);
            self.lock.push(holder);
            occupancy = with_waiter;
        }
    }

    fn reject_waiter(&mut self, ticket: Ticket, error: Error) {
        self.queue.remove(ticket);
        self.effects.wake(ticket, Answer::Rejected(error));
    }

    /// Waiting owners that became holders without this queue (RENAME, RESTORE) re-enter.
    fn reenter_holders(&mut self) {
        let clock = self.clock;
        let waits = |holder: &Holder| holder.is_live(clock) && self.queue.has(holder.owner());
        if !self.lock.holders().iter().any(waits) {
            return;
        }
        // A change lists removals before holders.
        self.expire_holders();
        for holder in self.lock.holders_mut() {
            if self.queue.has(holder.owner()) {
                let holds = holder.holds();
                grant_requests(self.queue, holder, clock, self.effects);
                if holder.holds() > holds {
                    self.effects.updated(holder, clock);
                }
            }
        }
    }
}

/// Gives a holder a hold for each of its waiting requests. Requests with a stricter limit are rejected.
fn grant_requests(queue: &mut Queue, holder: &mut Holder, clock: LeaseClock, effects: &mut Effects) {
    let Some(tickets) = queue.remove_owner(holder.owner()) else {
        return;
    };
    for &ticket in tickets.iter() {
        let Some(waiter) = queue.remove_only(ticket) else {
            effects.internal_error("an owner's ticket without a waiter");
            continue;
        };
        match grant_request(&waiter, holder, clock) {
            Ok(()) => {
                let waited_ms = waiter.since.ms_until(clock.now);
                let granted = granted(holder, clock, waited_ms);
                effects.wake(ticket, Answer::Granted(granted));
            }
            Err(error) => effects.wake(ticket, Answer::Rejected(error)),
        }
    }
}

fn grant_request(waiter: &Waiter, holder: &mut Holder, clock: LeaseClock) -> Result<(), Error> {
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
    holder.extend(waiter.lease_ms, clock);
    Ok(())
}
