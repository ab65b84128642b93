use super::{Moment, Occupancy, drop_ended};
use crate::effects::Effects;
use crate::fence::Fences;
use crate::queue::{Queue, Waiter};
use crate::refusal::Refusal;
use crate::state::{Holder, Lock};
use crate::step::acquire::{add_hold, granted};

/// Looks after a lock when nobody asks for it: whose time is up, whose lease has ended, who can be let in.
pub fn tend(lock: &mut Lock, queue: &mut Queue, moment: &Moment, fences: &mut Fences, effects: &mut Effects) {
    give_up_waiting(queue, moment, effects);
    drop_ended(lock, moment, effects);
    serve(lock, queue, moment, fences, effects);
}

/// Answers the waiters whose time is up.
pub fn give_up_waiting(queue: &mut Queue, moment: &Moment, effects: &mut Effects) {
    while let Some(ticket) = queue.overdue(moment.now) {
        queue.remove(ticket);
        effects.timed_out(ticket);
    }
}

/// Lets in the first waiters, in order, as far as the grant rule allows.
pub(super) fn serve(
    lock: &mut Lock,
    queue: &mut Queue,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) {
    if queue.is_empty() || moment.grace_left_ms().is_some() {
        return;
    }
    give_up_waiting(queue, moment, effects);
    reenter_holders(lock, queue, moment, effects);
    let mut occupancy = Occupancy::of(lock, moment);
    while let Some((ticket, waiter)) = queue.first() {
        if moment.evictable {
            queue.remove(ticket);
            effects.refused(ticket, Refusal::Evictable);
            continue;
        }
        let with_waiter = occupancy.with(waiter.limit);
        if !with_waiter.is_within_limit() {
            return;
        }
        let Some(fence) = fences.next() else {
            queue.remove(ticket);
            effects.refused(ticket, Refusal::FencesUsedUp);
            continue;
        };
        // Before the first grant: no lease ends during a step.
        if occupancy.holders < lock.holders().len() {
            drop_ended(lock, moment, effects);
        }
        let lease_end = moment.now.after_ms(waiter.lease_ms);
        let mut holder = Holder::new(&waiter.owner, waiter.limit, fence, moment.now, lease_end);
        grant_all(queue, &mut holder, moment, effects);
        effects.acquired(&holder, moment);
        lock.push(holder);
        occupancy = with_waiter;
    }
}

/// An owner that came to hold the lock by other ways than this queue (RENAME, RESTORE) re-enters.
fn reenter_holders(lock: &mut Lock, queue: &mut Queue, moment: &Moment, effects: &mut Effects) {
    let waits = |holder: &Holder| moment.is_live(holder) && queue.has(holder.owner());
    if !lock.holders().iter().any(waits) {
        return;
    }
    // Departures stand before holders in a change.
    drop_ended(lock, moment, effects);
    for holder in lock.holders_mut() {
        if queue.has(holder.owner()) {
            let holds = holder.holds();
            grant_all(queue, holder, moment, effects);
            if holder.holds() > holds {
                effects.updated(holder, moment);
            }
        }
    }
}

/// Gives a holder a hold for each of its waiting requests. Those that want a stricter limit are refused.
fn grant_all(queue: &mut Queue, holder: &mut Holder, moment: &Moment, effects: &mut Effects) {
    let Some(requests) = queue.remove_owner(holder.owner()) else {
        return;
    };
    for ticket in requests.iter() {
        let Some(waiter) = queue.take(ticket) else {
            continue;
        };
        match grant_one(&waiter, holder, moment) {
            Ok(()) => {
                let waited_ms = waiter.since.ms_until(moment.now);
                effects.granted(ticket, granted(holder, moment, waited_ms));
            }
            Err(refusal) => effects.refused(ticket, refusal),
        }
    }
}

fn grant_one(waiter: &Waiter, holder: &mut Holder, moment: &Moment) -> Result<(), Refusal> {
    if waiter.limit < holder.limit {
        return Err(Refusal::Upgrade(holder.limit));
    }
    if waiter.request_id.as_deref().is_some_and(|id| holder.has_name(id)) {
        return Ok(());
    }
    add_hold(holder, waiter.request_id.as_deref())?;
    holder.lease_end = moment.prolonged(holder, waiter.lease_ms);
    Ok(())
}
