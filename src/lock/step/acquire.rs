use super::{Moment, drop_ended};
use crate::lock::effects::Effects;
use crate::lock::fence::{Fence, Fences};
use crate::lock::refusal::Refusal;
use crate::lock::request::Acquire;
use crate::lock::state::{Holder, Lock};

/// The answer to an ACQUIRE that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub fence: Fence,
    pub holds: u64,
    /// What remains of the lease, rounded down.
    pub lease_ms: u64,
}

/// Grants a hold: to a holder always (re-entry), to a new owner when the limits allow one more holder.
/// `None`: not granted.
pub fn acquire(
    lock: &mut Lock,
    request: &Acquire<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Refusal> {
    match lock.get(request.owner).filter(|holder| moment.is_live(holder)) {
        Some(holder) if request.request_id.is_some_and(|id| holder.has_name(id)) => {
            Ok(Some(granted(holder, moment)))
        }
        Some(_) => reenter(lock, request, moment, effects).map(Some),
        None => admit(lock, request, moment, fences, effects),
    }
}

/// One more hold for a holder. Its limit stays, its lease never becomes shorter.
fn reenter(
    lock: &mut Lock,
    request: &Acquire<'_>,
    moment: &Moment,
    effects: &mut Effects,
) -> Result<Granted, Refusal> {
    refuse_in_grace(moment)?;
    let holder = lock.get_mut(request.owner).ok_or(Refusal::NotHeld)?;
    if request.limit < holder.limit {
        return Err(Refusal::Upgrade(holder.limit));
    }
    add_hold(holder, request)?;
    holder.lease_end = moment.prolonged(holder, request.lease_ms);
    drop_ended(lock, moment, effects);
    let holder = lock.get(request.owner).ok_or(Refusal::NotHeld)?;
    effects.updated(holder, moment);
    Ok(granted(holder, moment))
}

/// A new holder, when it fits.
fn admit(
    lock: &mut Lock,
    request: &Acquire<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<Option<Granted>, Refusal> {
    refuse_in_grace(moment)?;
    if moment.evictable {
        return Err(Refusal::Unsafe);
    }
    if !fits(lock, request, moment) {
        return Ok(None);
    }
    let fence = fences.next().ok_or(Refusal::FencesUsedUp)?;
    let lease_end = moment.now.after_ms(request.lease_ms);
    let mut holder = Holder::new(request.owner, request.limit, fence, moment.now, lease_end);
    add_hold(&mut holder, request)?;
    drop_ended(lock, moment, effects);
    effects.acquired(&holder, moment);
    let answer = granted(&holder, moment);
    lock.push(holder);
    Ok(Some(answer))
}

/// The grant rule: so many holders as there will be must be within the smallest limit among the request
/// and all present holders.
fn fits(lock: &Lock, request: &Acquire<'_>, moment: &Moment) -> bool {
    let live = lock.holders().iter().filter(|holder| moment.is_live(holder));
    let (holders, limit) = live.fold((1_usize, request.limit), |(holders, limit), holder| {
        (holders.saturating_add(1), limit.min(holder.limit))
    });
    limit.allows(holders)
}

fn add_hold(holder: &mut Holder, request: &Acquire<'_>) -> Result<(), Refusal> {
    match request.request_id {
        Some(name) => holder.add_named(name),
        None => holder.add_unnamed(1),
    }
}

fn refuse_in_grace(moment: &Moment) -> Result<(), Refusal> {
    moment
        .grace_left_ms()
        .map_or(Ok(()), |ms| Err(Refusal::Quarantine(ms)))
}

fn granted(holder: &Holder, moment: &Moment) -> Granted {
    Granted {
        fence: holder.fence,
        holds: holder.holds(),
        lease_ms: moment.lease_ms(holder),
    }
}
