//! What must be true of every step, whatever was asked and whatever the lock was like before.

use super::ops::{Action, Answer, Request};
use super::subject::core_limit;
use crate::context::TransitionContext;
use crate::effects::{Effects, Replication};
use crate::fence::Fence;
use crate::lock::{Holder, Lock};
use crate::outcome::Event;

/// One step: a request, or a sweep.
#[derive(Debug)]
pub struct Checked<'a> {
    pub before: &'a Lock,
    pub known_before: Fence,
    /// The request and the owner's name; `None` = a sweep.
    pub request: Option<(&'a Request, &'a [u8])>,
    pub cx: &'a TransitionContext,
    pub after: &'a Lock,
    pub known_after: Fence,
    /// Means nothing for a sweep.
    pub answer: Answer,
    pub effects: &'a Effects,
}

type Invariant = fn(&Checked) -> bool;

const INVARIANTS: [(&str, Invariant); 14] = [
    (
        "mutual exclusion: never more live holders than the smallest limit among them",
        mutual_exclusion,
    ),
    ("a lock is sound, the ended holders included", sound),
    ("a new grant gets a fence above all that were given", fences_rise),
    (
        "a holder keeps fence, limit and the time since when it holds",
        holders_stay_who_they_are,
    ),
    ("no lease gets shorter", leases_never_shrink),
    ("an ended lease is never revived", never_revived),
    (
        "what is refused or not granted leaves no trace",
        refused_without_trace,
    ),
    (
        "what is repeated with its request id changes nothing",
        repeated_without_trace,
    ),
    ("nobody changes but the owner who asks", others_stay),
    ("during a grace nobody gets a hold", no_grants_in_a_grace),
    ("a change leaves no ended holder behind", changes_sweep),
    (
        "a sweep is of use exactly when the first lease has ended",
        first_lease_end_is_known,
    ),
    ("the events tell what happened, in order, once", events_tell),
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

fn mutual_exclusion(step: &Checked) -> bool {
    let live: Vec<&Holder> = step.live(step.after).collect();
    live.iter()
        .filter_map(|holder| holder.limit().get())
        .all(|limit| live.len() as u64 <= u64::from(limit))
}

fn sound(step: &Checked) -> bool {
    step.after.is_sound() && step.after.holders().iter().all(|holder| holder.holds() > 0)
}

fn fences_rise(step: &Checked) -> bool {
    let mut given = step.came().map(Holder::fence);
    let (new, second) = (given.next(), given.next());
    new.is_none_or(|fence| fence > step.known_before)
        && second.is_none()
        && step.known_after == new.unwrap_or(step.known_before)
}

fn holders_stay_who_they_are(step: &Checked) -> bool {
    let who = |holder: &Holder| {
        (
            holder.owner().to_vec(),
            holder.fence(),
            holder.limit(),
            holder.since(),
        )
    };
    step.live(step.before)
        .filter_map(|old| Some((old, find_owner(step.after, old.owner())?)))
        .all(|(old, new)| who(old) == who(new))
}

fn leases_never_shrink(step: &Checked) -> bool {
    step.stayed()
        .all(|(old, new)| step.cx.lease_end(new) >= step.cx.lease_end(old))
}

fn never_revived(step: &Checked) -> bool {
    step.stayed()
        .all(|(old, new)| step.cx.is_live(old) || !step.cx.is_live(new))
}

fn refused_without_trace(step: &Checked) -> bool {
    match (step.request, step.answer) {
        (Some(_), Answer::Error(..) | Answer::NotGranted) => step.left_no_trace(),
        _ => true,
    }
}

fn repeated_without_trace(step: &Checked) -> bool {
    let Some((request, owner)) = step.request else {
        return true;
    };
    let own = step.live(step.before).find(|holder| holder.owner() == owner);
    let named = |name| own.is_some_and(|holder| holder.has_request_id(&super::subject::name_bytes(name)));
    match request.action {
        Action::Acquire {
            name: Some(name),
            limit,
            ..
        } if named(name) => {
            // With a stricter limit it is not the same request again.
            let same = own.is_some_and(|holder| core_limit(limit) >= holder.limit());
            step.left_no_trace() && same == matches!(step.answer, Answer::Granted { .. })
        }
        Action::ReleaseNamed(name) if !named(name) => step.left_no_trace(),
        _ => true,
    }
}

fn others_stay(step: &Checked) -> bool {
    let asks = |holder: &Holder| step.request.is_some_and(|(_, owner)| owner == holder.owner());
    step.live(step.before)
        .filter(|holder| !asks(holder))
        .all(|old| find_owner(step.after, old.owner()) == Some(old))
        && step.came().all(asks)
}

fn no_grants_in_a_grace(step: &Checked) -> bool {
    let holds = |lock: &Lock| lock.holders().iter().map(Holder::holds).sum::<u64>();
    step.cx.grace_end <= step.cx.now || holds(step.after) <= holds(step.before)
}

fn changes_sweep(step: &Checked) -> bool {
    !step.changed() || step.live(step.after).count() == step.after.holders().len()
}

fn first_lease_end_is_known(step: &Checked) -> bool {
    let due = step
        .cx
        .first_lease_end(step.before)
        .is_some_and(|end| end <= step.cx.now);
    step.request.is_some() || step.changed() == due
}

/// The events, told from the difference between before and after: the expired ones first, then what the
/// request did. So nobody is announced twice or in silence.
fn events_tell(step: &Checked) -> bool {
    let (ended, gave_up): (Vec<&Holder>, Vec<&Holder>) =
        step.gone().partition(|holder| !step.cx.is_live(holder));
    let mut expected = vec![Event::Expired; ended.len()];
    if let Some((request, owner)) = step.request {
        let released = gave_up.iter().any(|holder| holder.owner() == owner);
        let gives_up = !matches!(request.action, Action::Acquire { .. } | Action::Extend { .. })
            && step.answer == Answer::Holds(0);
        if released && gives_up {
            expected.push(Event::Released);
        }
    }
    expected.extend(step.came().map(|_| Event::Acquired));
    if matches!(step.answer, Answer::Lease(_)) {
        expected.push(Event::Extended);
    }
    // A holder that left while its lease ran must have been the one who asked.
    let announced = ended.len() + usize::from(expected.contains(&Event::Released));
    step.effects.events == expected && announced == step.gone().count()
}

fn changes_are_replicated(step: &Checked) -> bool {
    step.changed() == (step.effects.replication != Replication::Nothing)
}

impl<'a> Checked<'a> {
    fn live(&self, lock: &'a Lock) -> impl Iterator<Item = &'a Holder> {
        lock.holders().iter().filter(|holder| self.cx.is_live(holder))
    }

    /// Those who were holders before and are no more.
    fn gone(&self) -> impl Iterator<Item = &'a Holder> {
        self.before
            .holders()
            .iter()
            .filter(|old| find_fence(self.after, old.fence()).is_none())
    }

    /// Those who became holders.
    fn came(&self) -> impl Iterator<Item = &'a Holder> {
        self.after
            .holders()
            .iter()
            .filter(|new| find_fence(self.before, new.fence()).is_none())
    }

    /// Those who are holders by the same grant as before: as they were, as they are.
    fn stayed(&self) -> impl Iterator<Item = (&'a Holder, &'a Holder)> {
        self.before
            .holders()
            .iter()
            .filter_map(|old| Some((old, find_fence(self.after, old.fence())?)))
    }

    /// Whether anything changed that matters. How long a lease would run without the grace that prolongs
    /// it does not.
    fn changed(&self) -> bool {
        let is_same = |old: &Holder, new: &Holder| {
            (old.owner(), old.fence(), old.anonymous()) == (new.owner(), new.fence(), new.anonymous())
                && old.request_ids() == new.request_ids()
                && self.cx.lease_end(old) == self.cx.lease_end(new)
        };
        let (before, after) = (self.before.holders(), self.after.holders());
        before.len() != after.len() || before.iter().zip(after).any(|(old, new)| !is_same(old, new))
    }

    fn left_no_trace(&self) -> bool {
        self.before.holders() == self.after.holders()
            && self.known_before == self.known_after
            && self.effects.replication == Replication::Nothing
            && self.effects.events.is_empty()
            && self.effects.change().is_empty()
    }
}

fn find_owner<'a>(lock: &'a Lock, owner: &[u8]) -> Option<&'a Holder> {
    lock.holders().iter().find(|holder| holder.owner() == owner)
}

fn find_fence(lock: &Lock, fence: Fence) -> Option<&Holder> {
    lock.holders().iter().find(|holder| holder.fence() == fence)
}
