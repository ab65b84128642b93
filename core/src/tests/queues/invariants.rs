//! What must be true of every step of a lock with a queue, whatever was asked and whatever it was like before.

use std::collections::BTreeSet;

use crate::context::TransitionContext;
use crate::effects::{Answer, Effects};
use crate::fence::Fence;
use crate::lock::{Holder, Lock};
use crate::outcome::Event;
use crate::queue::Waiter;
use crate::ticket::Ticket;

/// A lock and its queue at one cx.
#[derive(Debug)]
pub struct Snapshot {
    pub lock: Lock,
    pub queue: Vec<(Ticket, Waiter)>,
}

#[derive(Debug)]
pub struct Checked<'a> {
    pub before: &'a Snapshot,
    pub known_before: Fence,
    pub cx: &'a TransitionContext,
    pub after: &'a Snapshot,
    pub known_after: Fence,
    pub effects: &'a Effects,
}

type Invariant = fn(&Checked) -> bool;

const INVARIANTS: [(&str, Invariant); 10] = [
    (
        "never more live holders than the smallest limit among them",
        within_the_limit,
    ),
    ("a lock is sound, the ended holders included", sound),
    (
        "who waited has one answer, or waits on in the same place",
        one_answer_each,
    ),
    ("nobody overtakes", nobody_overtakes),
    ("a new grant gets a fence above all that were given", fences_rise),
    ("no wake-up is lost", nobody_waits_in_vain),
    ("who is told of a hold has it", grants_are_true),
    (
        "who has waited long enough is told so, and nobody else is",
        timeouts_are_true,
    ),
    ("during a grace nobody gets a hold", no_grants_in_a_grace),
    (
        "the ended are announced before the new, each once",
        events_tell_in_order,
    ),
];

pub fn check(step: &Checked) {
    for (invariant, holds) in INVARIANTS {
        assert!(holds(step), "violated: {invariant}\n{step:#?}");
    }
}

fn within_the_limit(step: &Checked) -> bool {
    let live: Vec<&Holder> = step.live().collect();
    live.iter().all(|holder| holder.limit().allows(live.len()))
}

fn sound(step: &Checked) -> bool {
    let lock = &step.after.lock;
    lock.is_sound() && lock.holders().iter().all(|holder| holder.holds() > 0)
}

fn one_answer_each(step: &Checked) -> bool {
    let mut accounted: Vec<Ticket> = step.effects.wakes.iter().map(|wake| wake.ticket).collect();
    accounted.extend(step.after.queue.iter().map(|(ticket, _)| *ticket));
    accounted.sort_unstable();
    let before: Vec<Ticket> = step.before.queue.iter().map(|(ticket, _)| *ticket).collect();
    // The request itself may be queued now: at the end.
    if accounted.len() > before.len() {
        let last = step.after.queue.last().map(|(ticket, _)| *ticket);
        return accounted.pop() == last && accounted == before;
    }
    accounted == before
}

/// Whoever became a holder had nobody before it who waits on. One that did not wait had nobody at all.
fn nobody_overtakes(step: &Checked) -> bool {
    let first_left = step.after.queue.first().map(|(ticket, _)| *ticket);
    let first_of = |owner: &[u8]| {
        let own = step
            .before
            .queue
            .iter()
            .find(|(_, waiter)| waiter.owner() == owner);
        own.map(|(ticket, _)| *ticket)
    };
    let mut came = step.came().map(|holder| first_of(holder.owner()));
    came.all(|own| match (own, first_left) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(left)) => own < left,
    })
}

fn fences_rise(step: &Checked) -> bool {
    let fences: Vec<Fence> = step.came().map(Holder::fence).collect();
    let last = fences.last().copied().unwrap_or(step.known_before);
    fences.is_sorted() && fences.iter().all(|fence| *fence > step.known_before) && step.known_after == last
}

fn nobody_waits_in_vain(step: &Checked) -> bool {
    let Some((_, first)) = step.after.queue.first() else {
        return true;
    };
    if step.is_grace() {
        return true;
    }
    let waits = |holder: &Holder| {
        let owners = step.after.queue.iter().map(|(_, waiter)| waiter.owner());
        { owners }.any(|owner| owner == holder.owner())
    };
    let limits = step.live().map(Holder::limit);
    let strictest = limits.fold(first.limit(), Ord::min);
    let fits = strictest.allows(step.live().count() + 1);
    !fits && !step.cx.evictable && !step.live().any(waits)
}

fn grants_are_true(step: &Checked) -> bool {
    step.effects.wakes.iter().all(|wake| {
        let Answer::Granted(granted) = &wake.answer else {
            return true;
        };
        let waiter = step.waiter(wake.ticket);
        let own = step.live().find(|holder| holder.owner() == waiter.owner());
        own.is_some_and(|holder| {
            holder.fence() == granted.fence
                && holder.holds() >= granted.holds
                && step.cx.lease_ms(holder) >= granted.lease_ms
                && granted.waited_ms == waiter.since().ms_until(step.cx.now)
        })
    })
}

fn timeouts_are_true(step: &Checked) -> bool {
    let now = step.cx.now;
    let is_late = |waiter: &Waiter| waiter.deadline().is_some_and(|deadline| deadline <= now);
    let answers_true = step.effects.wakes.iter().all(|wake| match wake.answer {
        Answer::TimedOut => is_late(step.waiter(wake.ticket)),
        Answer::Granted(_) => !is_late(step.waiter(wake.ticket)),
        Answer::Withdrawn | Answer::Refused(_) => true,
    });
    answers_true && (step.is_grace() || !step.after.queue.iter().any(|(_, waiter)| is_late(waiter)))
}

fn no_grants_in_a_grace(step: &Checked) -> bool {
    let holds = |snapshot: &Snapshot| snapshot.lock.holders().iter().map(Holder::holds).sum::<u64>();
    !step.is_grace() || holds(step.after) <= holds(step.before)
}

fn events_tell_in_order(step: &Checked) -> bool {
    let count = |event: Event| {
        step.effects
            .events
            .iter()
            .filter(|other| **other == event)
            .count()
    };
    let after: BTreeSet<Fence> = step.after.lock.holders().iter().map(Holder::fence).collect();
    let gone = step.before.lock.holders().iter();
    let gone = gone.filter(|holder| !after.contains(&holder.fence()));
    let (gave_up, ended): (Vec<&Holder>, Vec<&Holder>) = gone.partition(|holder| step.cx.is_live(holder));
    let new_before_ended = step
        .effects
        .events
        .iter()
        .skip_while(|event| **event != Event::Acquired)
        .any(|event| *event == Event::Expired);
    count(Event::Expired) == ended.len()
        && count(Event::Released) == gave_up.len()
        && count(Event::Acquired) == step.came().count()
        && !new_before_ended
}

impl<'a> Checked<'a> {
    fn live(&self) -> impl Iterator<Item = &'a Holder> {
        let holders = self.after.lock.holders().iter();
        holders.filter(|holder| self.cx.is_live(holder))
    }

    /// Those who became holders.
    fn came(&self) -> impl Iterator<Item = &'a Holder> {
        let before: BTreeSet<Fence> = self.before.lock.holders().iter().map(Holder::fence).collect();
        let after = self.after.lock.holders().iter();
        after.filter(move |holder| !before.contains(&holder.fence()))
    }

    fn waiter(&self, ticket: Ticket) -> &'a Waiter {
        let own = self.before.queue.iter().find(|(other, _)| *other == ticket);
        &own.expect("one who waited").1
    }

    fn is_grace(&self) -> bool {
        self.cx.grace_end > self.cx.now
    }
}
