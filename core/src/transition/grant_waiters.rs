use super::rules::{Occupancy, Rules, above_holders, expire_holders, granted};
use super::timer::time_out_waiters;
use crate::effects::{Answer, Effects};
use crate::lock::Holder;
use crate::names::Ticket;
use crate::time::LeaseClock;
use crate::waiting::{Queue, Waiter};
use crate::wire::Error;

impl Rules<'_> {
    /// Grants the lock to the first waiters, in order, as far as the grant rule allows. Where there are too many for one
    /// transition the timer goes on, and requests leave it to that.
    #[inline]
    pub(super) fn grant_waiters(&mut self) {
        if self.queue.as_ref().is_some_and(|queue| queue.is_cut) {
            return;
        }
        if self.lacks_replicas.is_none()
            && self.clock.grace_left_ms().is_none()
            && let Some(queue) = self.queue.take()
        {
            self.grant_first_waiters(queue);
            self.queue = Some(queue);
        }
    }

    fn grant_first_waiters(&mut self, queue: &mut Queue) {
        let clock = self.clock;
        time_out_waiters(queue, clock, self.effects);
        if !queue.is_cut {
            self.reenter_holders(queue);
        }
        if queue.is_cut {
            return;
        }
        let mut occupancy = Occupancy::of(self.lock, clock);
        while let Some((ticket, waiter)) = queue.first() {
            if self.effects.is_full() {
                queue.is_cut = true;
                return;
            }
            if self.evictable {
                reject_waiter(queue, ticket, Error::Evictable, self.effects);
                continue;
            }
            if !occupancy.allows(waiter.limit, self.max_holders) {
                return;
            }
            let with_waiter = occupancy.with(waiter.limit);
            let min_fence = waiter.min_fence;
            let min_fence = min_fence.map(|min| above_holders(min, self.lock, clock));
            let Some(fence) = self.fences.next_fence(self.name, min_fence) else {
                reject_waiter(queue, ticket, Error::FencesUsedUp, self.effects);
                continue;
            };
            // Before the first grant: no lease expires during a transition.
            if occupancy.has_expired {
                expire_holders(self.lock, clock, self.effects);
            }
            let mut holder = Holder::granted(&waiter.owner, waiter.limit, fence, waiter.lease_ms, clock);
            grant_requests(queue, &mut holder, clock, self.effects);
            self.effects.acquired(&holder, clock);
            self.lock.push(holder);
            occupancy = Occupancy {
                has_expired: false,
                ..with_waiter
            };
        }
    }

    /// Waiting owners that became holders without this queue (RENAME, RESTORE), or were queued as holders during a grace
    /// period, re-enter.
    fn reenter_holders(&mut self, queue: &mut Queue) {
        if !queue.may_have_holders {
            return;
        }
        queue.may_have_holders = false;
        let clock = self.clock;
        let waits = |holder: &Holder| holder.is_live(clock) && queue.has(holder.owner());
        if !self.lock.holders().iter().any(waits) {
            return;
        }
        // A change lists removals before holders.
        self.expire_holders();
        for holder in self.lock.holders_mut() {
            if queue.has(holder.owner()) {
                if self.effects.is_full() {
                    (queue.is_cut, queue.may_have_holders) = (true, true);
                    return;
                }
                let holds = holder.holds();
                grant_requests(queue, holder, clock, self.effects);
                if holder.holds() > holds {
                    self.effects.updated(holder, clock);
                }
            }
        }
    }
}

fn reject_waiter(queue: &mut Queue, ticket: Ticket, error: Error, effects: &mut Effects) {
    if let Some(waiter) = queue.remove(ticket) {
        effects.wake(ticket, waiter, Answer::Rejected(error));
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
        let answer = match grant_request(&waiter, holder, clock) {
            Ok(()) => {
                let waited_ms = waiter.since.ms_until(clock.now);
                Answer::Granted(granted(holder, clock, waited_ms))
            }
            Err(error) => Answer::Rejected(error),
        };
        effects.wake(ticket, waiter, answer);
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
    holder.add_hold(waiter.request_id.as_deref())?;
    holder.extend(waiter.lease_ms, clock);
    Ok(())
}
