use std::collections::BTreeMap;

use super::{Occupancy, Transition};
use crate::codec::{Removal, decode_change};
use crate::effects::{Effects, Replication};
use crate::error::Error;
use crate::limit::Limit;
use crate::lock::{Holder, Lock};
use crate::outcome::Event;

impl Transition<'_> {
    /// Applies a change from the primary or the append-only file. No clock decides anything here; leases count
    /// from `now`. A change that would leave the lock unsound is rejected and changes nothing. Removing an
    /// owner that is not a holder is allowed.
    ///
    /// Returns whether the change added a holder.
    pub fn apply(&mut self, change: &[u8]) -> Result<bool, Error> {
        let change = decode_change(change, self.cx.now)?;
        if change.removals.is_empty() && change.holders.is_empty() {
            return Err(Error::InvalidEncoding);
        }
        let removed = removed(&change.removals);
        let slots = resolve_slots(self.lock, &removed, &change.holders).ok_or(Error::InvalidEncoding)?;
        remove(self.lock, &change.removals, &removed, self.effects);
        for (slot, holder) in slots.into_iter().zip(change.holders) {
            let fence = holder.fence;
            let former = self.lock.holders().get(slot).map(Holder::fence);
            self.effects.is_fence_raised |= former.is_some_and(|former| former != fence);
            self.effects.events.extend(upsert(self.lock, slot, holder));
        }
        self.engine.observe_lock(self.lock, self.cx);
        self.effects.replication = Replication::Verbatim;
        Ok(self.effects.events.contains(&Event::Acquired))
    }
}

/// The owners that a change removes, each with the index of its removal.
type Removed<'a> = BTreeMap<&'a [u8], usize>;

fn removed<'a>(removals: &[Removal<'a>]) -> Removed<'a> {
    let owners = removals.iter().map(|removal| removal.owner);
    owners.zip(0..).collect()
}

/// The index of each incoming holder after the removals: new holders are appended. `None` if the lock would not
/// be sound.
fn resolve_slots(lock: &Lock, removed: &Removed<'_>, incoming: &[Holder]) -> Option<Vec<usize>> {
    let mut known: BTreeMap<&[u8], Option<(usize, &Holder)>> = BTreeMap::new();
    for holder in incoming {
        known.insert(holder.owner(), None);
    }
    let mut occupancy = Occupancy::EMPTY;
    let mut last_fence = 0;
    let stays = |holder: &&Holder| !removed.contains_key(holder.owner());
    for holder in lock.holders().iter().filter(stays) {
        if let Some(known) = known.get_mut(holder.owner()) {
            *known = Some((occupancy.holders, holder));
        }
        occupancy = occupancy.with(holder.limit);
        last_fence = holder.fence;
    }
    let mut slots = Vec::with_capacity(incoming.len());
    for holder in incoming {
        let known = known.get_mut(holder.owner())?;
        let slot = match *known {
            Some((slot, former)) if may_follow(former, holder) => {
                *known = Some((slot, holder));
                slot
            }
            None if holder.fence > last_fence => {
                let slot = occupancy.holders;
                *known = Some((slot, holder));
                occupancy = occupancy.with(holder.limit);
                last_fence = holder.fence;
                slot
            }
            Some(_) | None => return None,
        };
        slots.push(slot);
    }
    occupancy.is_within_limit().then_some(slots)
}

/// Whether the same grant can have changed like this: only the fence of a sole holder is ever raised.
fn may_follow(former: &Holder, holder: &Holder) -> bool {
    let is_raised = former.limit == Limit::MUTEX && former.fence < holder.fence;
    former.limit == holder.limit && (former.fence == holder.fence || is_raised)
}

/// Removes holders. The events are in the order of the change.
fn remove(lock: &mut Lock, removals: &[Removal<'_>], removed: &Removed<'_>, effects: &mut Effects) {
    let mut indices: Vec<usize> = Vec::new();
    lock.remove_if(
        |holder| removed.contains_key(holder.owner()),
        |holder| indices.extend(removed.get(holder.owner())),
    );
    indices.sort_unstable();
    let events = indices.iter().filter_map(|index| removals.get(*index));
    effects.events.extend(events.map(|removal| removal.event));
}

/// Updates the holder at that index, or appends one. Returns the event that this amounts to.
fn upsert(lock: &mut Lock, slot: usize, holder: Holder) -> Option<Event> {
    match lock.holders_mut().get_mut(slot) {
        Some(known) => {
            let is_extended = known.holds() == holder.holds();
            *known = holder;
            is_extended.then_some(Event::Extended)
        }
        None => {
            lock.push(holder);
            Some(Event::Acquired)
        }
    }
}
