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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::circle::{self, Circle};
use super::limit::Limit;
use super::queue::{Queue, Ticket};
use super::time::Instant;
use super::waiting::{Entry, LockName, Waiting};

/// What keeps this owner waiting for that lock for ever, `None` when it will be served.
pub(super) fn search(waiting: &Waiting, name: &LockName, owner: &[u8], now: Instant) -> Option<Circle> {
    let mut world = World::reached_by(waiting, owner, now);
    world.reduce();
    let lock = world.locks.iter().position(|site| site.name == name)?;
    let owner = World::FIRST;
    let is_stuck = world.owners.get(owner)?.waits.contains(&lock);
    is_stuck.then(|| circle::through(&world, owner, lock))
}

/// The number of an owner, or of a lock, in a [`World`].
pub(super) type Number = usize;

/// All that an owner which waits depends on, in which the reduction is played through.
#[derive(Default)]
pub(super) struct World<'a> {
    pub(super) owners: Vec<Player<'a>>,
    pub(super) locks: Vec<Site<'a>>,
}

pub(super) struct Player<'a> {
    pub(super) name: &'a [u8],
    pub(super) holds: BTreeMap<Number, Hold>,
    pub(super) waits: BTreeSet<Number>,
}

pub(super) struct Hold {
    limit: Limit,
    /// Not because the reduction has admitted it.
    pub(super) is_real: bool,
}

pub(super) struct Site<'a> {
    pub(super) name: &'a LockName,
    /// The holders, for real or by reduction: the strictest limit comes first.
    pub(super) holders: BTreeSet<(Limit, Number)>,
    /// Who waits, in order: one request an owner, since its others are granted with the first.
    pub(super) queue: Vec<(Number, Limit)>,
    /// How many of them the reduction has admitted.
    admitted: usize,
    /// How far into the queue of the lock `queue` goes: nobody behind it matters.
    reached: Option<Ticket>,
}

impl<'a> World<'a> {
    /// The owner from which all others are reached.
    const FIRST: Number = 0;

    pub(super) fn reached_by(waiting: &'a Waiting, owner: &'a [u8], now: Instant) -> Self {
        let mut visitor = Visitor::default();
        visitor.meet(owner);
        let mut visited = 0;
        // Everybody who is met is put at the end.
        while let Some(owner) = visitor.world.owners.get(visited).map(|player| player.name) {
            for (name, entry) in waiting.waited_for_by(owner) {
                let lock = visitor.visit_holders(name, entry, now);
                visitor.visit_waiters_up_to(owner, lock, &entry.queue);
            }
            visited = visited.saturating_add(1);
        }
        visitor.world
    }

    /// Has everybody give up all who waits for nothing, until nobody is left who could.
    fn reduce(&mut self) {
        // Who fits already is only held back: by a grace, or for a moment.
        (0..self.locks.len()).for_each(|lock| while self.admit(lock).is_some() {});
        let mut idle: Vec<Number> = (0..self.owners.len())
            .filter(|owner| self.is_idle(*owner))
            .collect();
        while let Some(owner) = idle.pop() {
            for lock in self.give_up_all(owner) {
                while let Some(admitted) = self.admit(lock) {
                    idle.extend(Some(admitted).filter(|owner| self.is_idle(*owner)));
                }
            }
        }
    }

    fn is_idle(&self, owner: Number) -> bool {
        self.owners
            .get(owner)
            .is_some_and(|player| player.waits.is_empty())
    }

    /// The locks that the owner held.
    fn give_up_all(&mut self, owner: Number) -> impl Iterator<Item = Number> + use<> {
        let holds = self
            .owners
            .get_mut(owner)
            .map(|player| std::mem::take(&mut player.holds))
            .unwrap_or_default();
        for (lock, hold) in &holds {
            if let Some(site) = self.locks.get_mut(*lock) {
                site.holders.remove(&(hold.limit, owner));
            }
        }
        holds.into_keys()
    }

    /// Admits the first waiter, if the grant rule does.
    fn admit(&mut self, lock: Number) -> Option<Number> {
        let site = self.locks.get_mut(lock)?;
        let (owner, limit) = *site.queue.get(site.admitted)?;
        let strictest = site.holders.first().map_or(limit, |(held, _)| limit.min(*held));
        if !strictest.allows(site.holders.len().saturating_add(1)) {
            return None;
        }
        site.admitted = site.admitted.saturating_add(1);
        site.holders.insert((limit, owner));
        let player = self.owners.get_mut(owner)?;
        player.waits.remove(&lock);
        let is_real = false;
        player.holds.insert(lock, Hold { limit, is_real });
        Some(owner)
    }
}

/// Finds what the world consists of.
#[derive(Default)]
struct Visitor<'a> {
    world: World<'a>,
    owners: HashMap<&'a [u8], Number>,
    locks: HashMap<&'a LockName, Number>,
}

impl<'a> Visitor<'a> {
    fn meet(&mut self, name: &'a [u8]) -> Number {
        *self.owners.entry(name).or_insert_with(|| {
            self.world.owners.push(Player {
                name,
                holds: BTreeMap::new(),
                waits: BTreeSet::new(),
            });
            self.world.owners.len().saturating_sub(1)
        })
    }

    fn visit_holders(&mut self, name: &'a LockName, entry: &'a Entry, now: Instant) -> Number {
        if let Some(lock) = self.locks.get(name) {
            return *lock;
        }
        let lock = self.world.locks.len();
        self.locks.insert(name, lock);
        let mut holders = BTreeSet::new();
        for member in entry.holders.iter().filter(|member| member.lease_end > now) {
            let (owner, limit) = (self.meet(&member.owner), member.limit);
            holders.insert((limit, owner));
            if let Some(player) = self.world.owners.get_mut(owner) {
                player.holds.insert(lock, Hold { limit, is_real: true });
            }
        }
        self.world.locks.push(Site {
            name,
            holders,
            queue: Vec::new(),
            admitted: 0,
            reached: None,
        });
        lock
    }

    /// Visits `owner` and whoever stands before it, but for those who have been visited.
    fn visit_waiters_up_to(&mut self, owner: &[u8], lock: Number, queue: &'a Queue) {
        let reached = self.world.locks.get(lock).and_then(|site| site.reached);
        let Some(place) = queue.first_of(owner).filter(|place| reached < Some(*place)) else {
            return;
        };
        for (ticket, waiter) in queue.between(reached, place) {
            // An owner's first request takes the others along.
            if queue.first_of(waiter.owner()) == Some(ticket) {
                let owner = self.meet(waiter.owner());
                self.wait(owner, lock, waiter.limit());
            }
        }
        if let Some(site) = self.world.locks.get_mut(lock) {
            site.reached = Some(place);
        }
    }

    fn wait(&mut self, owner: Number, lock: Number, limit: Limit) {
        let World { owners, locks } = &mut self.world;
        let (Some(player), Some(site)) = (owners.get_mut(owner), locks.get_mut(lock)) else {
            return;
        };
        // A holder that waits re-enters: it does not wait for anybody.
        if !player.holds.contains_key(&lock) {
            player.waits.insert(lock);
            site.queue.push((owner, limit));
        }
    }
}
