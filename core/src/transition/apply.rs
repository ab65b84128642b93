use std::collections::BTreeMap;

use super::rules::Occupancy;
use super::server_state::ServerState;
use crate::effects::Effects;
use crate::fence::Fence;
use crate::lock::{Holder, Lock, Removal, decode_change};
use crate::names::Limit;
use crate::time::{Instant, LeaseClock};
use crate::wire::{Error, Event};

impl ServerState {
    /// Applies a change from the primary or the append-only file. No clock decides anything here; leases count
    /// from `now`. A change that would leave the lock unsound is rejected and changes nothing. Removing an
    /// owner that is not a holder is allowed.
    pub fn apply(
        &mut self,
        now: Instant,
        lock: &mut Lock,
        change: &[u8],
        effects: &mut Effects,
    ) -> Result<(), Error> {
        effects.begin(self.clock(now), false);
        let change = decode_change(change, now)?;
        if change.removals.is_empty() && change.holders.is_empty() {
            return Err(Error::InvalidEncoding);
        }
        let removed = removed(&change.removals);
        let positions = resolve_positions(lock, &removed, &change.holders).ok_or(Error::InvalidEncoding)?;
        remove(lock, &change.removals, &removed, effects);
        for (position, holder) in positions.into_iter().zip(change.holders) {
            let fence = holder.fence;
            let former = lock.holders().get(position).map(Holder::fence);
            effects.is_fence_raised |= former.is_some_and(|former| former != fence);
            effects.events.extend(upsert(lock, position, holder));
        }
        self.observe_lock(lock, now);
        effects.is_changed = true;
        Ok(())
    }
}

/// The largest fence and the longest lease, in milliseconds, that a change brings: who does not trust its sender checks
/// them before [`ServerState::apply`].
pub fn maxima_of_change(change: &[u8]) -> Result<(Fence, u64), Error> {
    let clock = LeaseClock::default();
    let holders = decode_change(change, clock.now)?.holders;
    let maxima = |(fence, lease_ms): (Fence, u64), holder: &Holder| {
        (fence.max(holder.fence()), lease_ms.max(holder.lease_ms(clock)))
    };
    Ok(holders.iter().fold((0, 0), maxima))
}

/// The owners that a change removes, each with the index of its removal.
type Removed<'a> = BTreeMap<&'a [u8], usize>;

fn removed<'a>(removals: &[Removal<'a>]) -> Removed<'a> {
    let owners = removals.iter().map(|removal| removal.owner);
    owners.zip(0..).collect()
}

/// The index of each incoming holder after the removals: new holders are appended. `None` if the lock would not
/// be sound.
fn resolve_positions(lock: &Lock, removed: &Removed<'_>, incoming: &[Holder]) -> Option<Vec<usize>> {
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
    let mut positions = Vec::with_capacity(incoming.len());
    for holder in incoming {
        let known = known.get_mut(holder.owner())?;
        let position = match *known {
            Some((position, former)) if may_follow(former, holder) => {
                *known = Some((position, holder));
                position
            }
            None if holder.fence > last_fence => {
                let position = occupancy.holders;
                *known = Some((position, holder));
                occupancy = occupancy.with(holder.limit);
                last_fence = holder.fence;
                position
            }
            Some(_) | None => return None,
        };
        positions.push(position);
    }
    occupancy.is_within_limit().then_some(positions)
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
fn upsert(lock: &mut Lock, position: usize, holder: Holder) -> Option<Event> {
    match lock.holders_mut().get_mut(position) {
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
