use super::serve::serve;
use super::{Moment, Occupancy, drop_ended};
use crate::effects::Effects;
use crate::fence::{Fence, Fences};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::Acquire;
use crate::state::{Holder, Lock};

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
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Refusal> {
    serve(lock, queue, moment, fences, effects);
    let holder = lock.get(request.owner).filter(|holder| moment.is_live(holder));
    if let Some(holder) = holder {
        // At once, also where it could wait: waiting changes nothing about it.
        if request.limit < holder.limit {
            return Err(Refusal::Upgrade(holder.limit));
        }
        if request.request_id.is_some_and(|id| holder.has_name(id)) {
            return Ok(Some(granted(holder, moment, 0)));
        }
    }
    if let Some(left_ms) = moment.grace_left_ms() {
        return if request.block.is_some() {
            Ok(None)
        } else {
            Err(Refusal::Grace(left_ms))
        };
    }
    match holder {
        Some(_) => reenter(lock, request, moment, effects).map(Some),
        None => admit(lock, queue, request, moment, fences, effects),
    }
}

/// One more hold for a holder. Its limit stays, its lease never becomes shorter.
fn reenter(
    lock: &mut Lock,
    request: &Acquire<'_>,
    moment: &Moment,
    effects: &mut Effects,
) -> Result<Granted, Refusal> {
    let holder = lock.get_mut(request.owner).ok_or(Refusal::NotHeld)?;
    add_hold(holder, request.request_id)?;
    holder.lease_end = moment.prolonged(holder, request.lease_ms);
    drop_ended(lock, moment, effects);
    let holder = lock.get(request.owner).ok_or(Refusal::NotHeld)?;
    effects.updated(holder, moment);
    Ok(granted(holder, moment, 0))
}

/// A new holder, when it fits.
fn admit(
    lock: &mut Lock,
    queue: &Queue,
    request: &Acquire<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Refusal> {
    if moment.evictable {
        return Err(Refusal::Evictable);
    }
    let fits = || Occupancy::of(lock, moment).with(request.limit).is_within_limit();
    if !queue.is_empty() || !fits() {
        return Ok(None);
    }
    let fence = fences.next().ok_or(Refusal::FencesUsedUp)?;
    let lease_end = moment.now.after_ms(request.lease_ms);
    let mut holder = Holder::new(request.owner, request.limit, fence, moment.now, lease_end);
    add_hold(&mut holder, request.request_id)?;
    drop_ended(lock, moment, effects);
    effects.acquired(&holder, moment);
    let answer = granted(&holder, moment, 0);
    lock.push(holder);
    Ok(Some(answer))
}

pub(super) fn add_hold(holder: &mut Holder, request_id: Option<&[u8]>) -> Result<(), Refusal> {
    match request_id {
        Some(name) => holder.add_named(name),
        None => holder.add_unnamed(1),
    }
}

pub(super) fn granted(holder: &Holder, moment: &Moment, waited_ms: u64) -> Granted {
    Granted {
        fence: holder.fence,
        holds: holder.holds(),
        lease_ms: moment.lease_ms(holder),
        waited_ms,
    }
}
