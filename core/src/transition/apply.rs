use std::collections::BTreeMap;

use super::Occupancy;
use crate::codec::{Removal, decode_change};
use crate::effects::{Effects, Event, Replication};
use crate::error::Error;
use crate::fence::Fences;
use crate::lock::{Holder, Lock};
use crate::time::Instant;

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
) -> Result<bool, Error> {
    let change = decode_change(change, now)?;
    if change.removals.is_empty() && change.holders.is_empty() {
        return Err(Error::InvalidEncoding);
    }
    let removed = removed(&change.removals);
    let resolve_slots = resolve_slots(lock, &removed, &change.holders).ok_or(Error::InvalidEncoding)?;
    remove(lock, &change.removals, &removed, effects);
    for (place, holder) in resolve_slots.into_iter().zip(change.holders) {
        fences.observe(holder.fence());
        effects.events.extend(upsert(lock, place, holder));
    }
    effects.replication = Replication::Verbatim;
    Ok(effects.events.contains(&Event::Acquired))
}

/// The owners that depart, each with the number of its departure.
type Departing<'a> = BTreeMap<&'a [u8], usize>;

fn removed<'a>(removals: &[Removal<'a>]) -> Departing<'a> {
    let owners = removals.iter().map(|departure| departure.owner);
    owners.zip(0..).collect()
}

/// The place of each holder that a change tells of, when those who depart have left: new ones come last.
/// `None` when the lock would not be sound.
fn resolve_slots(lock: &Lock, removed: &Departing<'_>, incoming: &[Holder]) -> Option<Vec<usize>> {
    let mut standing: BTreeMap<&[u8], Option<(usize, &Holder)>> = BTreeMap::new();
    for holder in incoming {
        standing.insert(holder.owner(), None);
    }
    let mut occupancy = Occupancy::EMPTY;
    let mut last_fence = 0;
    let stays = |holder: &&Holder| !removed.contains_key(holder.owner());
    for holder in lock.holders().iter().filter(stays) {
        if let Some(standing) = standing.get_mut(holder.owner()) {
            *standing = Some((occupancy.holders, holder));
        }
        occupancy = occupancy.with(holder.limit);
        last_fence = holder.fence;
    }
    let mut resolve_slots = Vec::with_capacity(incoming.len());
    for holder in incoming {
        let standing = standing.get_mut(holder.owner())?;
        let place = match *standing {
            Some((place, known)) if known.fence == holder.fence && known.limit == holder.limit => place,
            None if holder.fence > last_fence => {
                let place = occupancy.holders;
                *standing = Some((place, holder));
                occupancy = occupancy.with(holder.limit);
                last_fence = holder.fence;
                place
            }
            Some(_) | None => return None,
        };
        resolve_slots.push(place);
    }
    occupancy.is_within_limit().then_some(resolve_slots)
}

/// Removes those who depart. The events are in the order of the change.
fn remove(lock: &mut Lock, removals: &[Removal<'_>], removed: &Departing<'_>, effects: &mut Effects) {
    let mut departed: Vec<usize> = Vec::new();
    lock.remove_if(
        |holder| removed.contains_key(holder.owner()),
        |holder| departed.extend(removed.get(holder.owner())),
    );
    departed.sort_unstable();
    let events = departed.iter().filter_map(|number| removals.get(*number));
    effects.events.extend(events.map(|departure| departure.event));
}

/// Updates the holder in that place, or adds one; the event that this amounts to.
fn upsert(lock: &mut Lock, place: usize, holder: Holder) -> Option<Event> {
    match lock.holders_mut().get_mut(place) {
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
