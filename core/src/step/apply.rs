use std::collections::BTreeMap;

use super::Occupancy;
use crate::effects::{Effects, Event, Replication};
use crate::encoding::{Departure, Malformed, decode_change};
use crate::fence::Fences;
use crate::state::{Holder, Lock};
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
) -> Result<bool, Malformed> {
    let change = decode_change(change, now)?;
    if change.departures.is_empty() && change.holders.is_empty() {
        return Err(Malformed);
    }
    let departing = departing(&change.departures);
    let places = places(lock, &departing, &change.holders).ok_or(Malformed)?;
    depart(lock, &change.departures, &departing, effects);
    for (place, holder) in places.into_iter().zip(change.holders) {
        fences.learn(holder.fence());
        effects.events.extend(put(lock, place, holder));
    }
    effects.replication = Replication::Verbatim;
    Ok(effects.events.contains(&Event::Acquired))
}

/// The owners that depart, each with the number of its departure.
type Departing<'a> = BTreeMap<&'a [u8], usize>;

fn departing<'a>(departures: &[Departure<'a>]) -> Departing<'a> {
    let owners = departures.iter().map(|departure| departure.owner);
    owners.zip(0..).collect()
}

/// The place of each holder that a change tells of, when those who depart have left: new ones come last.
/// `None` when the lock would not be sound.
fn places(lock: &Lock, departing: &Departing<'_>, told: &[Holder]) -> Option<Vec<usize>> {
    let mut standing: BTreeMap<&[u8], Option<(usize, &Holder)>> = BTreeMap::new();
    for holder in told {
        standing.insert(holder.owner(), None);
    }
    let mut occupancy = Occupancy::NOBODY;
    let mut last_fence = 0;
    let stays = |holder: &&Holder| !departing.contains_key(holder.owner());
    for holder in lock.holders().iter().filter(stays) {
        if let Some(standing) = standing.get_mut(holder.owner()) {
            *standing = Some((occupancy.holders, holder));
        }
        occupancy = occupancy.with(holder.limit);
        last_fence = holder.fence;
    }
    let mut places = Vec::with_capacity(told.len());
    for holder in told {
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
        places.push(place);
    }
    occupancy.is_within_limit().then_some(places)
}

/// Removes those who depart. The events are in the order of the change.
fn depart(lock: &mut Lock, departures: &[Departure<'_>], departing: &Departing<'_>, effects: &mut Effects) {
    let mut departed: Vec<usize> = Vec::new();
    lock.remove_if(
        |holder| departing.contains_key(holder.owner()),
        |holder| departed.extend(departing.get(holder.owner())),
    );
    departed.sort_unstable();
    let events = departed.iter().filter_map(|number| departures.get(*number));
    effects.events.extend(events.map(|departure| departure.event));
}

/// Updates the holder in that place, or adds one; the event that this amounts to.
fn put(lock: &mut Lock, place: usize, holder: Holder) -> Option<Event> {
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
