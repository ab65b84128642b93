use super::grant::grant_waiters;
use super::{TransitionContext, authorize, expire_holders};
use crate::effects::Effects;
use crate::error::Error;
use crate::fence::Fences;
use crate::lock::Lock;
use crate::queue::Queue;
use crate::request::Extend;

/// Prolongs a lease; answers what remains of it, in milliseconds.
///
/// During a grace a holder may be one that released, and acquired again, before the failover: only the
/// fence tells whether it still means this hold.
pub fn extend(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Extend<'_>,
    cx: &TransitionContext,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<u64, Error> {
    let lease_ms = extend_lease(lock, request, cx, effects);
    grant_waiters(lock, queue, cx, fences, effects);
    lease_ms
}

fn extend_lease(
    lock: &mut Lock,
    request: &Extend<'_>,
    cx: &TransitionContext,
    effects: &mut Effects,
) -> Result<u64, Error> {
    if let (None, Some(left_ms)) = (request.fence, cx.grace_left_ms()) {
        return Err(Error::Grace(left_ms));
    }
    let holder = authorize(lock, request.owner, request.fence, |holder| cx.is_live(holder))?;
    let lease_end = cx.extended_lease_end(holder, request.lease_ms);
    let longer = lease_end > cx.lease_end(holder);
    holder.lease_end = lease_end;
    expire_holders(lock, cx, effects);
    let holder = lock.get(request.owner).ok_or(Error::NotHeld)?;
    if longer {
        effects.updated(holder, cx);
    }
    effects.extended();
    Ok(cx.lease_ms(holder))
}
