use super::authorize::{authorize, vanished};
use super::rules::Rules;
use crate::effects::Answer;
use crate::lock::{Holder, Lock};
use crate::wire::{Error, Holds, Release};

impl Rules<'_> {
    pub(super) fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let remaining = self.release_holds(request);
        self.grant_waiters();
        remaining
    }

    pub(super) fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        let holder = self
            .lock
            .get(request.owner)
            .filter(|holder| holder.is_live(self.clock));
        let was_held = holder.is_some_and(|holder| match request.holds {
            Holds::ById(id) => holder.has_request_id(id),
            Holds::One | Holds::All => holder.anonymous() > 0,
        });
        if was_held {
            let remaining = self.release(request);
            if let Err(Error::Internal(what)) = remaining {
                self.effects.internal_error(what);
            }
            return remaining.is_ok();
        }
        // Something else may have freed the lock: no transition that sees the queue leaves a waiter in it that
        // could be granted.
        self.grant_waiters();
        false
    }

    /// Returns the number of holds that remain.
    fn release_holds(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let clock = self.clock;
        let Some(remaining) = take_holds(self.lock, request, |holder| holder.is_live(clock))? else {
            self.cancel_waiter(request);
            let own = self
                .lock
                .live_holders(clock)
                .find(|holder| holder.owner() == request.owner);
            return Ok(own.map_or(0, Holder::holds));
        };
        self.expire_holders();
        if remaining == 0 {
            self.lock.remove_if(
                |holder| holder.owner() == request.owner,
                |holder| {
                    self.effects.released(holder.owner());
                    self.effects.held(holder, clock);
                },
            );
        } else {
            let holder = self.lock.get(request.owner).ok_or_else(vanished)?;
            self.effects.updated(holder, clock);
        }
        Ok(remaining)
    }

    /// Withdraws a request that still waits.
    fn cancel_waiter(&mut self, request: &Release<'_>) {
        if let Holds::ById(id) = request.holds
            && let Some(queue) = &mut self.queue
            && let Some((ticket, _)) = queue.find(request.owner, id)
            && let Some(waiter) = queue.remove(ticket)
        {
            self.effects.wake(ticket, waiter, Answer::Withdrawn);
        }
    }
}

/// The holds that remain: a holder with none must be removed. `None`: there was no such hold.
fn take_holds(
    lock: &mut Lock,
    request: &Release<'_>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<Option<u64>, Error> {
    let holder = match authorize(lock, request.owner, request.fence, is_valid) {
        // Releasing by id is idempotent. Who gives its fence wants to know that the lock was lost.
        Err(Error::NotHeld | Error::NotOwner)
            if request.fence.is_none() && matches!(request.holds, Holds::ById(_)) =>
        {
            return Ok(None);
        }
        holder => holder?,
    };
    match request.holds {
        Holds::One => holder.release_one(),
        Holds::All => holder.release_all(),
        Holds::ById(id) if !holder.release_by_id(id) => return Ok(None),
        Holds::ById(_) => {}
    }
    Ok(Some(holder.holds()))
}
