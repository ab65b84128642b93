use super::{Step, Transition, authorize, vanished};
use crate::effects::Replication;
use crate::error::Error;
use crate::lock::{Holder, Lock};
use crate::request::{Holds, Release};

impl Transition<'_> {
    /// Applies a RELEASE from the primary or the append-only file: it happened, whatever the clock says here.
    pub fn apply_release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let left = match take_holds(self.lock, request, |_| true)? {
            Taken::Nothing(holds) => return Ok(holds),
            Taken::Left(left) => left,
        };
        if left == 0 {
            let effects = &mut *self.effects;
            remove(self.lock, request.owner, |holder| {
                effects.released(holder.owner())
            });
        }
        self.effects.replication = Replication::Verbatim;
        Ok(left)
    }
}

impl Step<'_> {
    pub(super) fn release(&mut self, request: &Release<'_>) -> Result<u64, Error> {
        let left = self.release_holds(request);
        self.grant_waiters();
        if matches!(left, Ok((_, true))) && self.effects.records() == 1 {
            // No holder expired and no waiter was granted the lock: a replica that executes the request ends
            // with the same state.
            self.effects.replication = Replication::Verbatim;
        }
        left.map(|(left, _)| left)
    }

    pub(super) fn rollback_grant(&mut self, request: &Release<'_>) -> bool {
        let holder = self
            .lock
            .get(request.owner)
            .filter(|holder| self.cx.is_live(holder));
        let was_held = holder.is_some_and(|holder| match request.holds {
            Holds::ById(id) => holder.has_request_id(id),
            Holds::One | Holds::All => holder.anonymous() > 0,
        });
        if was_held {
            return self.release(request).is_ok();
        }
        // Something else may have freed the lock: no transition that sees the queue leaves a waiter in it that
        // could be granted.
        self.grant_waiters();
        false
    }

    /// The number of holds that are left, and whether anything changed.
    fn release_holds(&mut self, request: &Release<'_>) -> Result<(u64, bool), Error> {
        let cx = self.cx;
        let left = match take_holds(self.lock, request, |holder| cx.is_live(holder))? {
            Taken::Nothing(holds) => {
                self.cancel_waiter(request);
                return Ok((holds, false));
            }
            Taken::Left(left) => left,
        };
        self.expire_holders();
        if left == 0 {
            remove(self.lock, request.owner, |holder| {
                self.effects.released(holder.owner());
                self.effects.held(holder, cx);
            });
        } else {
            let holder = self.lock.get(request.owner).ok_or_else(vanished)?;
            self.effects.updated(holder, cx);
        }
        Ok((left, true))
    }

    /// Withdraws a request that still waits.
    fn cancel_waiter(&mut self, request: &Release<'_>) {
        if let Holds::ById(id) = request.holds
            && let Some((ticket, _)) = self.queue.find(request.owner, id)
        {
            self.queue.remove(ticket);
            self.effects.withdrawn(ticket);
        }
    }
}

/// Removes a holder that has no holds left, and passes it to `left`.
fn remove(lock: &mut Lock, owner: &[u8], left: impl FnMut(&Holder)) {
    lock.remove_if(|holder| holder.owner() == owner, left);
}

enum Taken {
    /// There was no such hold: the holds as they are.
    Nothing(u64),
    /// The holds that are left. A holder with none must be removed.
    Left(u64),
}

fn take_holds(
    lock: &mut Lock,
    request: &Release<'_>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<Taken, Error> {
    let holder = match authorize(lock, request.owner, request.fence, is_valid) {
        // Releasing by id is idempotent. Who gives its fence wants to know that the lock was lost.
        Err(Error::NotHeld | Error::NotOwner)
            if request.fence.is_none() && matches!(request.holds, Holds::ById(_)) =>
        {
            return Ok(Taken::Nothing(0));
        }
        holder => holder?,
    };
    match request.holds {
        Holds::One => holder.release_one(),
        Holds::All => holder.release_all(),
        Holds::ById(id) if holder.release_by_id(id) => {}
        Holds::ById(_) => return Ok(Taken::Nothing(holder.holds())),
    }
    Ok(Taken::Left(holder.holds()))
}
