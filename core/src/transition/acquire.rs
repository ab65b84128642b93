use super::grant::grant_waiters;
use super::{Occupancy, TransitionContext, expire_holders};
use crate::effects::Effects;
use crate::error::Error;
use crate::fence::{Fence, Fences};
use crate::lock::{Holder, Lock};
use crate::queue::Queue;
use crate::request::Acquire;

/// The answer to an ACQUIRE that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub fence: Fence,
    pub holds: u64,
    /// What remains of the lease, rounded down.
    pub lease_ms: u64,
    /// For how long the request was in the queue, rounded down.
    pub waited_ms: u64,
}

/// Grants a hold: to a holder always (re-entry), to a new owner when nobody waits before it and the limits
/// allow one more holder. `None`: not granted, a request that blocks must wait.
pub fn acquire(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Acquire<'_>,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Error> {
    grant_waiters(lock, queue, cx, fences, effects);
    let holder = lock.get(request.owner).filter(|holder| cx.is_live(holder));
    if let Some(holder) = holder {
        // At once, also where it could wait: waiting changes nothing about it.
        if request.limit < holder.limit {
            return Err(Error::Upgrade(holder.limit));
        }
        if request.request_id.is_some_and(|id| holder.has_request_id(id)) {
            return Ok(Some(granted(holder, cx, 0)));
        }
    }
    if let Some(left_ms) = cx.grace_left_ms() {
        return if request.block.is_some() {
            Ok(None)
        } else {
            Err(Error::Grace(left_ms))
        };
    }
    match holder {
        Some(_) => reenter(lock, request, cx, effects).map(Some),
        None => admit(lock, queue, request, cx, fences, effects),
    }
}

/// One more hold for a holder. Its limit stays, its lease never becomes shorter.
fn reenter(
    lock: &mut Lock,
    request: &Acquire<'_>,
    cx: &TransitionContext,
    effects: &mut Effects,
) -> Result<Granted, Error> {
    let holder = lock.get_mut(request.owner).ok_or(Error::NotHeld)?;
    add_hold(holder, request.request_id)?;
    holder.lease_end = cx.extended_lease_end(holder, request.lease_ms);
    expire_holders(lock, cx, effects);
    let holder = lock.get(request.owner).ok_or(Error::NotHeld)?;
    effects.updated(holder, cx);
    Ok(granted(holder, cx, 0))
}

/// A new holder, when it fits.
fn admit(
    lock: &mut Lock,
    queue: &Queue,
    request: &Acquire<'_>,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Error> {
    if cx.evictable {
        return Err(Error::Evictable);
    }
    let fits = || Occupancy::of(lock, cx).with(request.limit).is_within_limit();
    if !queue.is_empty() || !fits() {
        return Ok(None);
    }
    let fence = fences.next_fence().ok_or(Error::FencesUsedUp)?;
    let lease_end = cx.now.after_ms(request.lease_ms);
    let mut holder = Holder::new(request.owner, request.limit, fence, cx.now, lease_end);
    add_hold(&mut holder, request.request_id)?;
    expire_holders(lock, cx, effects);
    effects.acquired(&holder, cx);
    let answer = granted(&holder, cx, 0);
    lock.push(holder);
    Ok(Some(answer))
}

pub(super) fn add_hold(holder: &mut Holder, request_id: Option<&[u8]>) -> Result<(), Error> {
    match request_id {
        Some(name) => holder.add_with_id(name),
        None => holder.add_anonymous(1),
    }
}

pub(super) fn granted(holder: &Holder, cx: &TransitionContext, waited_ms: u64) -> Granted {
    Granted {
        fence: holder.fence,
        holds: holder.holds(),
        lease_ms: cx.lease_ms(holder),
        waited_ms,
    }
}
