//! Who could never be served.
//!
//! By reduction: every owner that is not itself waiting gives up all it holds; the grant rule and the queue
//! order then admit some waiters; those of them that wait for nothing else give up all they hold too, and so
//! on. Whoever still waits in the end waits for ever. Circles among owners would be right for mutexes only:
//! a semaphore is free as soon as any one of its holders leaves.
//!
//! Each owner gives up once, and each request is admitted once.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::limit::Limit;
use super::waiting::{LockName, Waiting};

/// A circle of owners, each of which holds what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(pub(super) Vec<Link>);

/// `owner` holds `holds` and waits for `waits_for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub owner: Box<[u8]>,
    pub holds: Box<[u8]>,
    pub waits_for: Box<[u8]>,
}

/// The circle that keeps this owner waiting for that lock for ever, `None` when it will be served.
pub(super) fn search(waiting: &Waiting, name: &LockName, owner: &[u8]) -> Option<Circle> {
    let mut world = World::of(waiting);
    world.reduce();
    let lock = world.locks.iter().position(|site| site.name == name)?;
    let owner = *world.numbers.get(owner)?;
    world.waits_for(owner, lock).then(|| world.circle_from(owner))
}

/// A copy of all queues and holders, in which the reduction is played through. Owners and locks are numbers.
#[derive(Default)]
struct World<'a> {
    owners: Vec<Player<'a>>,
    locks: Vec<Site<'a>>,
    numbers: HashMap<&'a [u8], usize>,
}

struct Player<'a> {
    name: &'a [u8],
    /// The locks it holds: for real, or because the reduction admitted it.
    holds: Vec<usize>,
    /// The locks it waits for, one entry a request.
    waits: Vec<usize>,
}

struct Site<'a> {
    name: &'a LockName,
    holders: Vec<(usize, Limit)>,
    /// The requests in order. One whose owner does not wait for the lock any more is void.
    queue: VecDeque<(usize, Limit)>,
}

impl<'a> World<'a> {
    fn of(waiting: &'a Waiting) -> Self {
        let mut world = Self::default();
        for (lock, (name, entry)) in waiting.entries.iter().enumerate() {
            let mut site = Site {
                name,
                holders: Vec::new(),
                queue: VecDeque::new(),
            };
            for member in &entry.holders {
                let owner = world.number(&member.owner);
                site.holders.push((owner, member.limit));
                if let Some(player) = world.owners.get_mut(owner) {
                    player.holds.push(lock);
                }
            }
            for (_, waiter) in entry.queue.iter() {
                let owner = world.number(waiter.owner());
                site.queue.push_back((owner, waiter.limit()));
                // A holder that waits re-enters: it does not wait for anybody.
                if let Some(player) = world
                    .owners
                    .get_mut(owner)
                    .filter(|player| !player.holds.contains(&lock))
                {
                    player.waits.push(lock);
                }
            }
            world.locks.push(site);
        }
        world
    }

    fn number(&mut self, name: &'a [u8]) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.owners.push(Player {
                name,
                holds: Vec::new(),
                waits: Vec::new(),
            });
            self.owners.len().saturating_sub(1)
        })
    }

    fn waits_for(&self, owner: usize, lock: usize) -> bool {
        self.owners
            .get(owner)
            .is_some_and(|player| player.waits.contains(&lock))
    }

    /// Has everybody give up all who waits for nothing, until nobody is left who could.
    fn reduce(&mut self) {
        // Who fits already is only held back: by a grace, or for a moment.
        (0..self.locks.len()).for_each(|lock| while self.admit(lock).is_some() {});
        let mut idle: Vec<usize> = (0..self.owners.len())
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

    fn is_idle(&self, owner: usize) -> bool {
        self.owners
            .get(owner)
            .is_some_and(|player| player.waits.is_empty())
    }

    /// The locks that the owner held.
    fn give_up_all(&mut self, owner: usize) -> Vec<usize> {
        let held = self
            .owners
            .get_mut(owner)
            .map(|player| std::mem::take(&mut player.holds))
            .unwrap_or_default();
        for lock in &held {
            if let Some(site) = self.locks.get_mut(*lock) {
                site.holders.retain(|(holder, _)| *holder != owner);
            }
        }
        held
    }

    /// Admits the first waiter, if the grant rule does.
    fn admit(&mut self, lock: usize) -> Option<usize> {
        let (owner, limit) = loop {
            let (owner, limit) = *self.locks.get(lock)?.queue.front()?;
            if self.waits_for(owner, lock) {
                break (owner, limit);
            }
            self.locks.get_mut(lock)?.queue.pop_front();
        };
        let site = self.locks.get_mut(lock)?;
        let strictest = site
            .holders
            .iter()
            .map(|(_, limit)| *limit)
            .fold(limit, Limit::min);
        if !strictest.allows(site.holders.len().saturating_add(1)) {
            return None;
        }
        site.queue.pop_front();
        site.holders.push((owner, limit));
        let player = self.owners.get_mut(owner)?;
        player.holds.push(lock);
        // Its other requests here are re-entries now.
        player.waits.retain(|waits_for| *waits_for != lock);
        Some(owner)
    }

    /// From a waiter for ever to one that holds what it waits for, and on, until one comes again.
    fn circle_from(&self, owner: usize) -> Circle {
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut owner = owner;
        while let Some((lock, holder)) = self.blocked_by(owner) {
            path.push((owner, lock));
            if let Some(start) = path.iter().position(|(before, _)| *before == holder) {
                return self.describe(path.get(start..).unwrap_or_default());
            }
            owner = holder;
        }
        self.describe(&path)
    }

    /// What this owner waits for, and somebody who holds it and waits for ever too.
    fn blocked_by(&self, owner: usize) -> Option<(usize, usize)> {
        let lock = *self.owners.get(owner)?.waits.first()?;
        let (holder, _) = *self.locks.get(lock)?.holders.first()?;
        Some((lock, holder))
    }

    fn describe(&self, circle: &[(usize, usize)]) -> Circle {
        let holds = circle
            .iter()
            .map(|(_, lock)| *lock)
            .cycle()
            .skip(circle.len().saturating_sub(1));
        let links = circle
            .iter()
            .zip(holds)
            .filter_map(|((owner, waits_for), holds)| {
                Some(Link {
                    owner: self.owners.get(*owner)?.name.into(),
                    holds: self.locks.get(holds)?.name.key[..].into(),
                    waits_for: self.locks.get(*waits_for)?.name.key[..].into(),
                })
            });
        Circle(links.collect())
    }
}

/// `alice holds a, waits for b; bob holds b, waits for a`
impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer circle is cut.
        const SHOWN: usize = 8;
        for (index, link) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let (owner, holds) = (link.owner.escape_ascii(), link.holds.escape_ascii());
            write!(
                f,
                "{separator}{owner} holds {holds}, waits for {}",
                link.waits_for.escape_ascii()
            )?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "; and {more} more"),
        }
    }
}
