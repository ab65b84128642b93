use super::grant::grant_waiters;
use super::{TransitionContext, authorize, expire_holders};
use crate::effects::{Effects, Replication};
use crate::error::Error;
use crate::fence::Fences;
use crate::lock::{Holder, Lock};
use crate::queue::Queue;
use crate::request::{Holds, Release};

/// Gives back holds, and lets in who can be; answers how many are left, 0 = this owner has given the lock up.
pub fn release(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<u64, Error> {
    let left = release_holds(lock, queue, request, cx, effects);
    grant_waiters(lock, queue, cx, fences, effects);
    if matches!(left, Ok((_, true))) && effects.records() == 1 {
        // Nobody's lease had ended, nobody was let in: a replica that does what the request says ends with
        // the same state.
        effects.replication = Replication::Verbatim;
    }
    left.map(|(left, _)| left)
}

/// Gives back a hold that was granted to a client which has gone; whether it was still there.
pub fn rollback_grant(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) -> bool {
    let holder = lock.get(request.owner).filter(|holder| cx.is_live(holder));
    let is_there = holder.is_some_and(|holder| match request.holds {
        Holds::ById(name) => holder.has_request_id(name),
        Holds::One | Holds::All => holder.anonymous() > 0,
    });
    if is_there {
        return release(lock, queue, request, cx, fences, effects).is_ok();
    }
    // Something else has freed the lock meanwhile: a step that sees the queue leaves nobody in it who fits.
    grant_waiters(lock, queue, cx, fences, effects);
    false
}

/// The release itself: the holds that are left, and whether anything changed.
fn release_holds(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    cx: &TransitionContext,
    effects: &mut Effects,
) -> Result<(u64, bool), Error> {
    let left = match take_holds(lock, request, |holder| cx.is_live(holder))? {
        Released::Nothing(holds) => {
            cancel_waiter(queue, request, effects);
            return Ok((holds, false));
        }
        Released::Some(left) => left,
    };
    expire_holders(lock, cx, effects);
    match lock.get(request.owner) {
        Some(holder) if left == 0 => {
            effects.released(request.owner);
            effects.held(holder, cx);
            lock.remove(request.owner);
        }
        Some(holder) => effects.updated(holder, cx),
        None => {}
    }
    Ok((left, true))
}

/// Takes back a request that still waits.
fn cancel_waiter(queue: &mut Queue, request: &Release<'_>, effects: &mut Effects) {
    if let Holds::ById(id) = request.holds
        && let Some((ticket, _)) = queue.find(request.owner, id)
    {
        queue.remove(ticket);
        effects.withdrawn(ticket);
    }
}

/// A release that the primary or the log tells of: it happened, whatever the clock says here.
pub fn apply_release(lock: &mut Lock, request: &Release<'_>, effects: &mut Effects) -> Result<u64, Error> {
    let left = match take_holds(lock, request, |_| true)? {
        Released::Nothing(holds) => return Ok(holds),
        Released::Some(left) => left,
    };
    if left == 0 {
        lock.remove(request.owner);
        effects.released(request.owner);
    }
    effects.replication = Replication::Verbatim;
    Ok(left)
}

enum Released {
    /// There was no such hold: the holds as they are.
    Nothing(u64),
    /// The holds that are left. A holder with none must be removed.
    Some(u64),
}

fn take_holds(
    lock: &mut Lock,
    request: &Release<'_>,
    is_valid: impl Fn(&Holder) -> bool,
) -> Result<Released, Error> {
    let holder = match authorize(lock, request.owner, request.fence, is_valid) {
        // To take back a hold that is not there is no error, so that it can be asked for again.
        Err(Error::NotHeld | Error::NotOwner) if matches!(request.holds, Holds::ById(_)) => {
            return Ok(Released::Nothing(0));
        }
        holder => holder?,
    };
    match request.holds {
        Holds::One => holder.release_one(),
        Holds::All => holder.release_all(),
        Holds::ById(name) if holder.release_by_id(name) => {}
        Holds::ById(_) => return Ok(Released::Nothing(holder.holds())),
    }
    Ok(Released::Some(holder.holds()))
}
