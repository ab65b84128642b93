//! Who could never be served.
//!
//! By reduction: every owner that is not itself waiting gives up all it holds; the grant rule and the queue
//! order then admit some waiters; those of them that wait for nothing else give up all they hold too, and so
//! on. Whoever still waits in the end waits for ever. Circles among owners would be right for mutexes only:
//! a semaphore is free as soon as any one of its holders leaves.
//!
//! Only what the request depends on is looked at: the holders of its lock and those who wait before it, the
//! locks that these wait for, and so on. Each lock, owner and request is visited once; each owner gives up
//! once, and each request is admitted once.

use std::collections::{BTreeMap, BTreeSet};

use super::circle::{self, Circle};
use super::limit::Limit;
use super::queue::{Queue, Ticket};
use super::time::Instant;
use super::waiting::{Entry, LockName, Waiting};

/// What keeps this owner waiting for that lock for ever, `None` when it will be served.
pub(super) fn search(waiting: &Waiting, name: &LockName, owner: &[u8], now: Instant) -> Option<Circle> {
    let mut world = World::reached_by(waiting, owner, now);
    world.reduce();
    let is_stuck = world.owners.get(owner)?.waits.contains_key(name);
    is_stuck.then(|| circle::through(&world, owner, name))
}

/// All that an owner which waits depends on, in which the reduction is played through.
#[derive(Default)]
pub(super) struct World<'a> {
    pub(super) owners: BTreeMap<&'a [u8], Player<'a>>,
    pub(super) locks: BTreeMap<&'a LockName, Site<'a>>,
}

/// An owner, as far as locks are concerned that somebody waits for.
#[derive(Default)]
pub(super) struct Player<'a> {
    pub(super) holds: BTreeMap<&'a LockName, Hold>,
    /// The locks it waits for, and its place in [`Site::queue`].
    pub(super) waits: BTreeMap<&'a LockName, usize>,
}

pub(super) struct Hold {
    limit: Limit,
    /// Not because the reduction has admitted it.
    pub(super) is_real: bool,
}

#[derive(Default)]
pub(super) struct Site<'a> {
    /// The holders, for real or by reduction: the strictest limit comes first.
    pub(super) holders: BTreeSet<(Limit, &'a [u8])>,
    /// Who waits, in order: one request an owner, since its others are granted with the first.
    pub(super) queue: Vec<(&'a [u8], Limit)>,
    /// How many of them the reduction has admitted.
    pub(super) admitted: usize,
    /// How far into the queue of the lock `queue` goes: nobody behind it matters.
    reached: Option<Ticket>,
}

impl<'a> World<'a> {
    pub(super) fn reached_by(waiting: &'a Waiting, owner: &'a [u8], now: Instant) -> Self {
        let mut visitor = Visitor {
            now,
            world: Self::default(),
            unvisited: Vec::new(),
        };
        visitor.meet(owner);
        while let Some(owner) = visitor.unvisited.pop() {
            for (name, entry) in waiting.waited_for_by(owner) {
                visitor.visit_holders(name, entry);
                visitor.visit_waiters_before(owner, name, &entry.queue);
            }
        }
        visitor.world
    }

    /// Has everybody give up all who waits for nothing, until nobody is left who could.
    fn reduce(&mut self) {
        // Who fits already is only held back: by a grace, or for a moment.
        let locks: Vec<&LockName> = self.locks.keys().copied().collect();
        locks.iter().for_each(|name| while self.admit(name).is_some() {});
        let mut idle: Vec<&[u8]> = self.owners.keys().copied().collect();
        idle.retain(|owner| self.is_idle(owner));
        while let Some(owner) = idle.pop() {
            for name in self.give_up_all(owner) {
                while let Some(admitted) = self.admit(name) {
                    idle.extend(Some(admitted).filter(|owner| self.is_idle(owner)));
                }
            }
        }
    }

    fn is_idle(&self, owner: &[u8]) -> bool {
        self.owners
            .get(owner)
            .is_some_and(|player| player.waits.is_empty())
    }

    /// The locks that the owner held.
    fn give_up_all(&mut self, owner: &'a [u8]) -> impl Iterator<Item = &'a LockName> + use<'a> {
        let holds = self
            .owners
            .get_mut(owner)
            .map(|player| std::mem::take(&mut player.holds))
            .unwrap_or_default();
        for (name, hold) in &holds {
            if let Some(site) = self.locks.get_mut(name) {
                site.holders.remove(&(hold.limit, owner));
            }
        }
        holds.into_keys()
    }

    /// Admits the first waiter, if the grant rule does.
    fn admit(&mut self, name: &'a LockName) -> Option<&'a [u8]> {
        let site = self.locks.get_mut(name)?;
        let (owner, limit) = *site.queue.get(site.admitted)?;
        let strictest = site.holders.first().map_or(limit, |(held, _)| limit.min(*held));
        if !strictest.allows(site.holders.len().saturating_add(1)) {
            return None;
        }
        site.admitted = site.admitted.saturating_add(1);
        site.holders.insert((limit, owner));
        let player = self.owners.get_mut(owner)?;
        player.waits.remove(name);
        let is_real = false;
        player.holds.insert(name, Hold { limit, is_real });
        Some(owner)
    }
}

/// Finds what the world consists of.
struct Visitor<'a> {
    now: Instant,
    world: World<'a>,
    /// Owners that have been met, but not yet the locks that they wait for.
    unvisited: Vec<&'a [u8]>,
}

impl<'a> Visitor<'a> {
    fn meet(&mut self, owner: &'a [u8]) -> &mut Player<'a> {
        self.world.owners.entry(owner).or_insert_with(|| {
            self.unvisited.push(owner);
            Player::default()
        })
    }

    fn visit_holders(&mut self, name: &'a LockName, entry: &'a Entry) {
        if self.world.locks.contains_key(name) {
            return;
        }
        let mut site = Site::default();
        let now = self.now;
        for member in entry.holders.iter().filter(|member| member.lease_end > now) {
            let (owner, limit) = (&*member.owner, member.limit);
            let hold = Hold { limit, is_real: true };
            self.meet(owner).holds.insert(name, hold);
            site.holders.insert((limit, owner));
        }
        self.world.locks.insert(name, site);
    }

    /// Visits whoever stands before `owner`, and `owner` itself, but for those who have been visited.
    fn visit_waiters_before(&mut self, owner: &[u8], name: &'a LockName, queue: &'a Queue) {
        let Some(mut site) = self.world.locks.remove(name) else {
            return;
        };
        let place = queue.first_of(owner).filter(|place| site.reached < Some(*place));
        let unvisited = place.map(|place| queue.between(site.reached, place));
        for (ticket, waiter) in unvisited.into_iter().flatten() {
            let owner = waiter.owner();
            let player = self.meet(owner);
            // A holder that waits re-enters: it does not wait for anybody.
            if queue.first_of(owner) == Some(ticket) && !player.holds.contains_key(name) {
                player.waits.insert(name, site.queue.len());
                site.queue.push((owner, waiter.limit()));
            }
        }
        site.reached = site.reached.max(place);
        self.world.locks.insert(name, site);
    }
}
