//! What must be true of every transition, whatever the request and whatever the lock before it, and cannot be seen by
//! comparing replies and locks with those of the model; or must be true also of a transition that answers a part only.

use super::ops::{self, Reply, Request};
use crate::effects::{Answer, Effects, Wake};
use crate::fence::Fence;
use crate::lock::{Holder, Lock};
use crate::names::{LockNameRef, Ticket};
use crate::time::{Instant, LeaseClock};
use crate::waiting::{Queue, WaitTable, Waiter};
use crate::wire::{Error, Event, Release};

/// A lock and its queue at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub lock: Lock,
    pub queue: Vec<(Ticket, Waiter)>,
    /// The last transition had more waiters to answer than one may.
    pub is_cut: bool,
    /// The timer is to fire at once.
    pub is_due: bool,
}

impl Snapshot {
    pub fn of(name: LockNameRef<'_>, lock: &Lock, table: &WaitTable, now: Instant) -> Self {
        let queue = table.queue(name);
        let waiters = queue.into_iter().flat_map(Queue::iter);
        let wakeup = table.entry(name).and_then(|entry| entry.next_wakeup);
        Self {
            lock: lock.clone(),
            queue: waiters.map(|(ticket, waiter)| (ticket, waiter.clone())).collect(),
            is_cut: queue.is_some_and(|queue| queue.is_cut),
            is_due: wakeup.is_some_and(|wakeup| wakeup <= now),
        }
    }
}

/// One transition.
#[derive(Debug)]
pub struct Checked<'a> {
    pub before: &'a Snapshot,
    pub known_before: Fence,
    pub cause: Cause<'a>,
    pub clock: LeaseClock,
    pub evictable: bool,
    pub max_holders: Option<usize>,
    pub after: &'a Snapshot,
    pub known_after: Fence,
    pub reply: &'a Reply,
    pub effects: &'a Effects,
}

#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    Request(&'a Request<'a>),
    Rollback(&'a Release<'a>),
    /// The timer of a lock with waiters.
    Timer,
    /// The removal of expired holders of a lock without waiters.
    Expiry,
}

type Invariant = fn(&Checked) -> bool;

const INVARIANTS: [(&str, Invariant); 14] = [
    (
        "mutual exclusion: live holders are within the limit",
        within_limit,
    ),
    ("a lock is sound, expired holders included", sound),
    ("a waiter gets one reply, or keeps its position", one_reply_each),
    ("no request overtakes a waiter", no_overtaking),
    ("a grant gets a fence above all earlier ones", fences_rise),
    ("no wakeup is lost", no_lost_wakeup),
    ("few waiters are answered at a time", few_answers),
    ("a reported grant exists", reported_grants_exist),
    ("waiters time out in time, and never early", timeouts_are_exact),
    ("without a grant, no side effects", rejected_without_effects),
    ("a change leaves no expired holder", changes_expire_holders),
    (
        "holders expire when the first lease ends",
        expiry_is_due_at_first_lease_end,
    ),
    ("events match the changes, in order, once", events_match),
    (
        "what changed is replicated, and nothing else",
        changes_are_replicated,
    ),
];

pub fn check(step: &Checked) {
    for (invariant, holds) in INVARIANTS {
        assert!(holds(step), "violated: {invariant}\n{step:#?}");
    }
}

fn within_limit(step: &Checked) -> bool {
    let live: Vec<&Holder> = step.live(step.after).collect();
    live.iter().all(|holder| holder.limit().allows(live.len()))
}

fn sound(step: &Checked) -> bool {
    let lock = &step.after.lock;
    lock.is_sound() && lock.holders().iter().all(|holder| holder.holds() > 0)
}

fn one_reply_each(step: &Checked) -> bool {
    // A request that was repeated has left its position to its successor.
    let is_left = |wake: &&Wake| wake.answer != Answer::Rejected(Error::Replaced);
    let wakes = step.effects.wakes.iter().filter(is_left);
    let mut accounted: Vec<Ticket> = wakes.map(|wake| wake.ticket).collect();
    accounted.extend(step.after.queue.iter().map(|(ticket, _)| *ticket));
    accounted.sort_unstable();
    let before: Vec<Ticket> = step.before.queue.iter().map(|(ticket, _)| *ticket).collect();
    // The request itself may be queued now, at the end.
    if accounted.len() > before.len() {
        let last = step.after.queue.last().map(|(ticket, _)| *ticket);
        return accounted.pop() == last && accounted == before;
    }
    accounted == before
}

/// A new holder waited before all that still wait. One that did not wait found no waiter.
fn no_overtaking(step: &Checked) -> bool {
    let first_left = step.after.queue.first().map(|(ticket, _)| *ticket);
    let first_of = |owner: &[u8]| {
        let mut queue = step.before.queue.iter();
        let own = queue.find(|(_, waiter)| waiter.owner() == owner);
        own.map(|(ticket, _)| *ticket)
    };
    let mut added = step.added().map(|holder| first_of(holder.owner()));
    added.all(|own| match (own, first_left) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(left)) => own < left,
    })
}

fn fences_rise(step: &Checked) -> bool {
    let kept = step.kept().map(|(_, new)| new.fence()).max().unwrap_or(0);
    let rises = |holder: &Holder| {
        let has_min_fence = step.gives_min_fence(holder.owner());
        holder.fence() > if has_min_fence { kept } else { step.known_before }
    };
    let mut fences = step.after.lock.holders().iter().map(Holder::fence);
    step.added().is_sorted_by_key(Holder::fence)
        && step.added().all(rises)
        && step.known_after >= step.known_before
        && fences.all(|fence| fence <= step.known_after)
}

/// After a transition no waiter is left that could have an answer. Unless it has given as many answers as it may: then the
/// timer fires at once, and until then other transitions of the lock answer nobody, but a request that is withdrawn or
/// repeated.
fn no_lost_wakeup(step: &Checked) -> bool {
    let Some((_, first)) = step.after.queue.first() else {
        return true;
    };
    if step.after.is_cut {
        let leaves_it = step.before.is_cut && !matches!(step.cause, Cause::Timer);
        let is_asked_for =
            |wake: &Wake| matches!(wake.answer, Answer::Withdrawn | Answer::Rejected(Error::Replaced));
        return step.after.is_due
            && if leaves_it {
                step.effects.wakes.iter().all(is_asked_for)
            } else {
                step.effects.is_full()
            };
    }
    if step.is_grace() {
        return true;
    }
    let waits = |holder: &Holder| {
        let mut queue = step.after.queue.iter();
        queue.any(|(_, waiter)| waiter.owner() == holder.owner())
    };
    let limits = step.live(step.after).map(Holder::limit);
    let smallest = limits.fold(first.limit(), Ord::min);
    let holders = step.live(step.after).count();
    let fits = smallest.allows(holders + 1) && step.max_holders.is_none_or(|max| holders < max);
    !fits && !step.evictable && !step.live(step.after).any(waits)
}

/// All requests of an owner are answered together: those of the last one may exceed the limit.
fn few_answers(step: &Checked) -> bool {
    let is_left = |wake: &&Wake| wake.answer != Answer::Rejected(Error::Replaced);
    let wakes = step.effects.wakes.iter().filter(is_left);
    let mut newest_first = wakes.rev().map(|wake| wake.waiter.owner()).peekable();
    let last = newest_first.peek().copied();
    let others = newest_first.skip_while(|owner| Some(*owner) == last);
    others.count() < step.effects.max_answers.0
}

fn reported_grants_exist(step: &Checked) -> bool {
    step.effects.wakes.iter().all(|wake| {
        let Answer::Granted(granted) = &wake.answer else {
            return true;
        };
        let waiter = step.waiter(wake.ticket);
        let mut live = step.live(step.after);
        live.find(|holder| holder.owner() == waiter.owner())
            .is_some_and(|holder| {
                holder.fence() == granted.fence
                    && holder.holds() >= granted.holds
                    && holder.lease_ms(step.clock) >= granted.lease_ms
                    && granted.waited_ms == waiter.since().ms_until(step.clock.now)
            })
    })
}

fn timeouts_are_exact(step: &Checked) -> bool {
    let now = step.clock.now;
    let is_late = |waiter: &Waiter| waiter.deadline().is_some_and(|deadline| deadline <= now);
    let replies_are_right = step.effects.wakes.iter().all(|wake| match wake.answer {
        Answer::TimedOut => is_late(step.waiter(wake.ticket)),
        Answer::Granted(_) => !is_late(step.waiter(wake.ticket)),
        _ => true,
    });
    let may_be_late = step.is_grace() || step.after.is_cut;
    replies_are_right && (may_be_late || !step.after.queue.iter().any(|(_, waiter)| is_late(waiter)))
}

/// While no request waits: any request grants the lock to waiters, even if it is rejected itself.
fn rejected_without_effects(step: &Checked) -> bool {
    let is_rejected = matches!(
        step.reply,
        Err(_) | Ok(ops::Answer::NotGranted | ops::Answer::Queued(_))
    );
    !is_rejected || !step.before.queue.is_empty() || step.had_no_effects()
}

fn changes_expire_holders(step: &Checked) -> bool {
    !step.changed() || step.live(step.after).count() == step.after.lock.holders().len()
}

fn expiry_is_due_at_first_lease_end(step: &Checked) -> bool {
    let first = step.before.lock.first_lease_end(step.clock);
    let is_due = first.is_some_and(|end| end <= step.clock.now);
    !matches!(step.cause, Cause::Expiry) || step.changed() == is_due
}

/// The events, derived from the states before and after: removals, what the request did, grants. So no change
/// is published twice or not at all.
fn events_match(step: &Checked) -> bool {
    let (released, expired): (Vec<&Holder>, Vec<&Holder>) =
        step.removed().partition(|holder| holder.is_live(step.clock));
    let mut expected = vec![Event::Expired; expired.len()];
    expected.extend(released.iter().map(|_| Event::Released));
    if matches!(step.reply, Ok(ops::Answer::Lease(_))) {
        expected.push(Event::Extended);
    }
    expected.extend(step.added().map(|_| Event::Acquired));
    // A holder that left while its lease ran must be the requester.
    let may_release = match step.cause {
        Cause::Request(Request::Release(request)) | Cause::Rollback(request) => Some(request.owner),
        _ => None,
    };
    step.effects.events == expected && released.iter().all(|holder| Some(holder.owner()) == may_release)
}

/// A holder that releases a hold and then re-enters, because it waits, may end up as before.
fn changes_are_replicated(step: &Checked) -> bool {
    let reenters = step.cause.owner().is_some_and(|owner| step.waited(owner));
    let is_replicated = step.effects.is_changed;
    step.changed() == is_replicated || reenters && is_replicated
}

impl<'a> Cause<'a> {
    fn owner(self) -> Option<&'a [u8]> {
        match self {
            Self::Request(request) => Some(request.owner()),
            Self::Rollback(request) => Some(request.owner),
            Self::Timer | Self::Expiry => None,
        }
    }
}

impl<'a> Checked<'a> {
    fn live(&self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Holder> {
        let holders = snapshot.lock.holders().iter();
        holders.filter(|holder| holder.is_live(self.clock))
    }

    /// The holders whose grant is over.
    fn removed(&self) -> impl Iterator<Item = &'a Holder> {
        let before = self.before.lock.holders().iter();
        before.filter(|old| {
            self.find_grant(self.after, |new| self.is_same_grant(old, new))
                .is_none()
        })
    }

    /// The holders of new grants.
    fn added(&self) -> impl Iterator<Item = &'a Holder> {
        let after = self.after.lock.holders().iter();
        after.filter(|new| {
            self.find_grant(self.before, |old| self.is_same_grant(old, new))
                .is_none()
        })
    }

    /// The holders by the same grant, before and after.
    fn kept(&self) -> impl Iterator<Item = (&'a Holder, &'a Holder)> {
        let before = self.before.lock.holders().iter();
        before.filter_map(|old| {
            Some((
                old,
                self.find_grant(self.after, |new| self.is_same_grant(old, new))?,
            ))
        })
    }

    fn find_grant(&self, snapshot: &'a Snapshot, is_it: impl Fn(&Holder) -> bool) -> Option<&'a Holder> {
        snapshot.lock.holders().iter().find(|holder| is_it(holder))
    }

    /// A grant keeps its fence, unless the holder raises it.
    fn is_same_grant(&self, old: &Holder, new: &Holder) -> bool {
        let may_raise = |min: Fence| min == new.fence() && old.fence() < min;
        let is_raised = matches!(self.cause, Cause::Request(Request::Extend(request))
            if request.owner == new.owner() && request.min_fence.is_some_and(may_raise));
        (old.owner(), old.since()) == (new.owner(), new.since()) && (old.fence() == new.fence() || is_raised)
    }

    /// Whether a request of this owner gives a minimum for the fence of a new grant.
    fn gives_min_fence(&self, owner: &[u8]) -> bool {
        let gives = |waiter: &Waiter| waiter.owner() == owner && waiter.min_fence.is_some();
        self.before.queue.iter().any(|(_, waiter)| gives(waiter))
            || matches!(self.cause, Cause::Request(Request::Acquire(request)) if request.min_fence.is_some())
    }

    fn waited(&self, owner: &[u8]) -> bool {
        self.before
            .queue
            .iter()
            .any(|(_, waiter)| waiter.owner() == owner)
    }

    fn waiter(&self, ticket: Ticket) -> &'a Waiter {
        let own = self.before.queue.iter().find(|(other, _)| *other == ticket);
        &own.expect("only waiters are woken").1
    }

    fn is_grace(&self) -> bool {
        self.clock.grace_left_ms().is_some()
    }

    /// Whether anything observable changed. The length of a lease without the grace period that extends it is
    /// not.
    fn changed(&self) -> bool {
        let is_same = |old: &Holder, new: &Holder| {
            (old.owner(), old.fence(), old.anonymous()) == (new.owner(), new.fence(), new.anonymous())
                && old.request_ids() == new.request_ids()
                && old.lease_end(self.clock) == new.lease_end(self.clock)
        };
        let (before, after) = (self.before.lock.holders(), self.after.lock.holders());
        before.len() != after.len() || before.iter().zip(after).any(|(old, new)| !is_same(old, new))
    }

    fn had_no_effects(&self) -> bool {
        self.before.lock.holders() == self.after.lock.holders()
            && self.known_before == self.known_after
            && !self.effects.is_changed
            && self.effects.events.is_empty()
            && self.effects.change() == Some(&[])
    }
}
