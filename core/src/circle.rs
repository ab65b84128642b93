//! Why somebody waits for ever, in words.

use std::collections::VecDeque;
use std::fmt;

use super::deadlock::{Number, World};

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
    /// Will hold it before this owner has its turn.
    StandsBefore(Box<[u8]>),
}

/// An owner, and a lock for which it waits for ever.
type Step = (Number, Number);

/// The shortest circle through the request of `owner` for `lock`, after a reduction that left it waiting.
///
/// A request that makes a deadlock closes a circle. One that only meets a deadlock (one that formed while
/// nobody searched, or that a RENAME made) may stand outside: then a circle that it waits for.
pub(super) fn through(world: &World<'_>, owner: Number, lock: Number) -> Circle {
    let closed = Paths::from(world, owner, lock).back();
    let closed_by_request = closed.is_some();
    let steps = closed.unwrap_or_else(|| ahead_of(world, owner));
    Circle {
        links: describe(world, &steps),
        closed_by_request,
    }
}

/// A search in breadth over those who wait for ever: from a waiter to the holders of what it waits for, who
/// all wait for ever too, or they would have given it up.
struct Paths<'w> {
    world: &'w World<'w>,
    start: Number,
    /// From whom, and by which lock, each owner is reached.
    reached: Vec<Option<Step>>,
    /// The locks whose holders are reached.
    looked_at: Vec<bool>,
    next: VecDeque<Step>,
}

impl<'w> Paths<'w> {
    fn from(world: &'w World<'w>, start: Number, lock: Number) -> Self {
        Self {
            world,
            start,
            reached: vec![None; world.owners.len()],
            looked_at: vec![false; world.locks.len()],
            next: VecDeque::from([(start, lock)]),
        }
    }

    /// The shortest way that leads back to the start, if there is one.
    fn back(mut self) -> Option<Vec<Step>> {
        while let Some(step) = self.next.pop_front() {
            let (_, lock) = step;
            if std::mem::replace(self.looked_at.get_mut(lock)?, true) {
                continue;
            }
            for (_, holder) in &self.world.locks.get(lock)?.holders {
                self.reach(*holder, step);
            }
            if self.step_to(self.start).is_some() {
                return Some(self.steps_to_start());
            }
        }
        None
    }

    fn reach(&mut self, owner: Number, from: Step) {
        let (Some(reached), Some(player)) = (self.reached.get_mut(owner), self.world.owners.get(owner))
        else {
            return;
        };
        if reached.is_none() {
            *reached = Some(from);
            self.next.extend(player.waits.iter().map(|lock| (owner, *lock)));
        }
    }

    fn step_to(&self, owner: Number) -> Option<Step> {
        self.reached.get(owner).copied().flatten()
    }

    fn steps_to_start(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut owner = self.start;
        while let Some(step) = self.step_to(owner) {
            steps.push(step);
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
fn ahead_of(world: &World<'_>, owner: Number) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut places = vec![None; world.owners.len()];
    let mut owner = owner;
    while let Some((lock, holder)) = blocked_by(world, owner) {
        let place = places.get_mut(owner).and_then(|place| place.replace(steps.len()));
        if let Some(place) = place {
            return steps.split_off(place);
        }
        steps.push((owner, lock));
        owner = holder;
    }
    steps
}

/// What this owner waits for, and somebody who holds it.
fn blocked_by(world: &World<'_>, owner: Number) -> Option<(Number, Number)> {
    let lock = *world.owners.get(owner)?.waits.first()?;
    let (_, holder) = *world.locks.get(lock)?.holders.first()?;
    Some((lock, holder))
}

fn describe(world: &World<'_>, steps: &[Step]) -> Vec<Link> {
    let before = steps.iter().cycle().skip(steps.len().saturating_sub(1));
    steps
        .iter()
        .zip(before)
        .filter_map(|(step, before)| link(world, *step, *before))
        .collect()
}

fn link(world: &World<'_>, (owner, waits_for): Step, (other, claims): Step) -> Option<Link> {
    let player = world.owners.get(owner)?;
    let claim = if player.holds.get(&claims)?.is_real {
        Claim::Holds
    } else {
        Claim::StandsBefore(world.owners.get(other)?.name.into())
    };
    Some(Link {
        owner: player.name.into(),
        claim,
        claims: world.locks.get(claims)?.name.key[..].into(),
        waits_for: world.locks.get(waits_for)?.name.key[..].into(),
    })
}

/// `alice holds a, waits for b; bob holds b, waits for a: ` and what to do.
impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer circle is cut.
        const SHOWN: usize = 8;
        for (index, link) in self.links.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{link}")?;
        }
        match self.links.len().checked_sub(SHOWN) {
            None | Some(0) => {}
            Some(more) => write!(f, "; and {more} more")?,
        }
        f.write_str(if self.closed_by_request {
            ": release what this owner holds, then try again"
        } else {
            ": this request would wait for them, try again when a lease or a timeout has let one go"
        })
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
