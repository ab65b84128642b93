use super::serve::serve;
use super::{Moment, drop_ended, holder_mut};
use crate::effects::Effects;
use crate::fence::Fences;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::Extend;
use crate::state::Lock;

/// Prolongs a lease; answers what remains of it, in milliseconds.
///
/// During a grace a holder may be one that released, and acquired again, before the failover: only the
/// fence tells whether it still means this hold.
pub fn extend(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Extend<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<u64, Refusal> {
    let lease_ms = prolong(lock, request, moment, effects);
    serve(lock, queue, moment, fences, effects);
    lease_ms
}

fn prolong(
    lock: &mut Lock,
    request: &Extend<'_>,
    moment: &Moment,
    effects: &mut Effects,
) -> Result<u64, Refusal> {
    if let (None, Some(left_ms)) = (request.fence, moment.grace_left_ms()) {
        return Err(Refusal::Grace(left_ms));
    }
    let holder = holder_mut(lock, request.owner, request.fence, |holder| {
        moment.is_live(holder)
    })?;
    let lease_end = moment.prolonged(holder, request.lease_ms);
    let longer = lease_end > moment.lease_end(holder);
    holder.lease_end = lease_end;
    drop_ended(lock, moment, effects);
    let holder = lock.get(request.owner).ok_or(Refusal::NotHeld)?;
    if longer {
        effects.updated(holder, moment);
    }
    effects.extended();
    Ok(moment.lease_ms(holder))
}
