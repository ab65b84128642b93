use crate::lock::effects::{Effects, Event, Replication};
use crate::lock::encoding::{Change, Malformed, decode_change};
use crate::lock::fence::Fences;
use crate::lock::limit::Limit;
use crate::lock::state::{Holder, Lock};
use crate::lock::time::Instant;

/// Makes a change that the primary or the log tells of. No clock decides anything here; leases count
/// from `now`. A change after which the lock would not be sound is refused and changes nothing; that a
/// stranger departs is nothing new.
///
/// Answers whether the change admitted a new owner.
pub fn apply(
    lock: &mut Lock,
    change: &[u8],
    now: Instant,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<bool, Malformed> {
    let change = decode_change(change, now)?;
    let is_empty = change.departures.is_empty() && change.holders.is_empty();
    if is_empty || !is_sound(lock, &change) {
        return Err(Malformed);
    }
    for departure in change.departures {
        if lock.get(departure.owner).is_some() {
            lock.remove(departure.owner);
            effects.events.push(departure.event);
        }
    }
    for holder in change.holders {
        fences.learn(holder.fence());
        effects.events.extend(put(lock, holder));
    }
    effects.replication = Replication::Verbatim;
    Ok(effects.events.contains(&Event::Acquired))
}

/// Whether the lock keeps its invariants under this change.
fn is_sound(lock: &Lock, change: &Change<'_>) -> bool {
    let departs = |owner: &[u8]| change.departures.iter().any(|departure| departure.owner == owner);
    let staying = |owner: &[u8]| lock.get(owner).filter(|_| !departs(owner));
    let mut count = 0_usize;
    let mut limit = Limit::SHARED;
    let mut last_fence = 0;
    for holder in lock.holders().iter().filter(|holder| !departs(holder.owner())) {
        count = count.saturating_add(1);
        limit = limit.min(holder.limit());
        last_fence = holder.fence();
    }
    for (index, holder) in change.holders.iter().enumerate() {
        let told_before = change
            .holders
            .iter()
            .take(index)
            .find(|other| other.owner() == holder.owner());
        match told_before.or_else(|| staying(holder.owner())) {
            Some(known) if known.fence() == holder.fence() && known.limit() == holder.limit() => {}
            Some(_) => return false,
            None if holder.fence() <= last_fence => return false,
            None => {
                count = count.saturating_add(1);
                limit = limit.min(holder.limit());
                last_fence = holder.fence();
            }
        }
    }
    limit.allows(count)
}

/// Updates a holder or adds it; the event that this amounts to.
fn put(lock: &mut Lock, holder: Holder) -> Option<Event> {
    match lock.get_mut(holder.owner()) {
        Some(known) => {
            let extended = known.holds() == holder.holds();
            *known = holder;
            extended.then_some(Event::Extended)
        }
        None => {
            lock.push(holder);
            Some(Event::Acquired)
        }
    }
}
