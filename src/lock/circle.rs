//! Why somebody waits for ever, in words.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::deadlock::World;
use super::waiting::LockName;

/// Owners that wait for each other in a circle: each has a claim on what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    pub(super) links: Vec<Link>,
    /// Whether the request that was refused is part of it, and not only stuck behind it.
    pub(super) closed_by_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) owner: Box<[u8]>,
    pub(super) claim: Claim,
    /// The key of what the owner before it waits for.
    pub(super) claims: Box<[u8]>,
    pub(super) waits_for: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Holds,
    /// Will hold it, or keep it from others, before this owner comes to its turn.
    StandsBefore(Box<[u8]>),
}

/// An owner that waits for a lock for ever.
type Step<'a> = (&'a [u8], &'a LockName);

/// The shortest circle through the request of `owner` for `name`, after a reduction that left it waiting.
///
/// A request that makes the deadlock closes a circle. One that only meets a deadlock (one that formed while
/// nobody searched, or that a RENAME made) may stand outside: then a circle that it waits for.
pub(super) fn through<'a>(world: &World<'a>, owner: &'a [u8], name: &'a LockName) -> Circle {
    let closed = Paths::from(world, owner, name).back();
    let closed_by_request = closed.is_some();
    let steps = closed.unwrap_or_else(|| ahead_of(world, owner));
    Circle {
        links: describe(world, &steps),
        closed_by_request,
    }
}

/// A search in breadth over those who wait for ever: from a waiter to the holders of what it waits for, and
/// to those who stand before it.
struct Paths<'a, 'w> {
    world: &'w World<'a>,
    start: &'a [u8],
    /// Who is reached, from whom, and by which lock.
    reached: BTreeMap<&'a [u8], Step<'a>>,
    next: VecDeque<Step<'a>>,
    /// How many places of a queue have been looked at. A lock that is in here has had its holders looked at.
    places: BTreeMap<&'a LockName, usize>,
}

impl<'a, 'w> Paths<'a, 'w> {
    fn from(world: &'w World<'a>, start: &'a [u8], name: &'a LockName) -> Self {
        Self {
            world,
            start,
            reached: BTreeMap::new(),
            next: VecDeque::from([(start, name)]),
            places: BTreeMap::new(),
        }
    }

    /// The shortest way that leads back to the start, if there is one.
    fn back(mut self) -> Option<Vec<Step<'a>>> {
        while let Some((owner, name)) = self.next.pop_front() {
            self.look_at(owner, name);
            if self.reached.contains_key(self.start) {
                return Some(self.steps_to_start());
            }
        }
        None
    }

    /// Reaches all who are in the way of `owner` at that lock.
    fn look_at(&mut self, owner: &'a [u8], name: &'a LockName) {
        let world = self.world;
        let Some(site) = world.locks.get(name) else { return };
        let place = world.owners.get(owner).and_then(|player| player.waits.get(name));
        let place = place.copied().unwrap_or_default();
        let seen = self.places.get(name).copied();
        if seen.is_none() {
            for (_, holder) in &site.holders {
                self.reach(holder, (owner, name));
            }
        }
        let first = seen.unwrap_or(site.admitted);
        for (before, _) in site.queue.get(first..place).unwrap_or_default() {
            self.reach(before, (owner, name));
        }
        self.places.insert(name, first.max(place));
    }

    fn reach(&mut self, owner: &'a [u8], from: Step<'a>) {
        if self.reached.contains_key(owner) {
            return;
        }
        self.reached.insert(owner, from);
        let waits = self.world.owners.get(owner).map(|player| player.waits.keys());
        self.next
            .extend(waits.into_iter().flatten().map(|name| (owner, *name)));
    }

    fn steps_to_start(&self) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        let mut owner = self.start;
        while let Some(step) = self.reached.get(owner) {
            steps.push(*step);
            owner = step.0;
            if owner == self.start {
                break;
            }
        }
        steps.reverse();
        steps
    }
}

/// From a waiter to one who holds what it waits for, and on, until one comes again.
fn ahead_of<'a>(world: &World<'a>, owner: &'a [u8]) -> Vec<Step<'a>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut owner = owner;
    while let Some((name, holder)) = blocked_by(world, owner) {
        if let Some(place) = places.insert(owner, steps.len()) {
            return steps.split_off(place);
        }
        steps.push((owner, name));
        owner = holder;
    }
    steps
}

/// What this owner waits for, and somebody who holds it: who waits for ever too, or it would have given up.
fn blocked_by<'a>(world: &World<'a>, owner: &[u8]) -> Option<(&'a LockName, &'a [u8])> {
    let (name, _) = world.owners.get(owner)?.waits.first_key_value()?;
    let (_, holder) = world.locks.get(name)?.holders.first()?;
    Some((name, holder))
}

fn describe(world: &World<'_>, steps: &[Step<'_>]) -> Vec<Link> {
    let before = steps.iter().cycle().skip(steps.len().saturating_sub(1));
    let link = |((owner, waits_for), (other, name)): (&Step, &Step)| {
        let hold = world.owners.get(owner).and_then(|player| player.holds.get(name));
        let claim = if hold.is_some_and(|hold| hold.is_real) {
            Claim::Holds
        } else {
            Claim::StandsBefore((*other).into())
        };
        Link {
            owner: (*owner).into(),
            claim,
            claims: name.key[..].into(),
            waits_for: waits_for.key[..].into(),
        }
    };
    steps.iter().zip(before).map(link).collect()
}

/// `alice holds a, waits for b; bob holds b, waits for a`
impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer circle is cut.
        const SHOWN: usize = 8;
        if !self.closed_by_request {
            f.write_str("this request would wait for others that wait for each other; ")?;
        }
        for (index, link) in self.links.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{link}")?;
        }
        match self.links.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, claims) = (self.owner.escape_ascii(), self.claims.escape_ascii());
        match &self.claim {
            Claim::Holds => write!(f, "{owner} holds {claims}")?,
            Claim::StandsBefore(other) => write!(
                f,
                "{owner} stands before {} in the queue of {claims}",
                other.escape_ascii()
            )?,
        }
        write!(f, ", waits for {}", self.waits_for.escape_ascii())
    }
}
