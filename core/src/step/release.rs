use super::serve::serve;
use super::{Moment, drop_ended, holder_mut};
use crate::effects::{Effects, Replication};
use crate::fence::Fences;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::request::{Release, Share};
use crate::state::{Holder, Lock};

/// Gives back holds, and lets in who can be; answers how many are left, 0 = this owner has given the lock up.
pub fn release(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> Result<u64, Refusal> {
    let left = give_up(lock, queue, request, moment, effects);
    serve(lock, queue, moment, fences, effects);
    if left.is_ok_and(|(_, changed)| changed) && effects.records() == 1 {
        // Nobody's lease had ended, nobody was let in: a replica that does what the request says ends with
        // the same state.
        effects.replication = Replication::Verbatim;
    }
    left.map(|(left, _)| left)
}

/// Gives back a hold that was granted to a client which has gone; whether it was still there.
pub fn undo(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    moment: &Moment,
    fences: &mut Fences,
    effects: &mut Effects,
) -> bool {
    let holder = lock.get(request.owner).filter(|holder| moment.is_live(holder));
    let is_there = holder.is_some_and(|holder| match request.share {
        Share::Named(name) => holder.has_name(name),
        Share::One | Share::All => holder.unnamed() > 0,
    });
    if is_there {
        return release(lock, queue, request, moment, fences, effects).is_ok();
    }
    // Something else has freed the lock meanwhile: a step that sees the queue leaves nobody in it who fits.
    serve(lock, queue, moment, fences, effects);
    false
}

/// The release itself: the holds that are left, and whether anything changed.
fn give_up(
    lock: &mut Lock,
    queue: &mut Queue,
    request: &Release<'_>,
    moment: &Moment,
    effects: &mut Effects,
) -> Result<(u64, bool), Refusal> {
    let left = match give_back(lock, request, |holder| moment.is_live(holder))? {
        GaveBack::Nothing(holds) => {
            withdraw(queue, request, effects);
            return Ok((holds, false));
        }
        GaveBack::Some(left) => left,
    };
    drop_ended(lock, moment, effects);
    match lock.get(request.owner) {
        Some(holder) if left == 0 => {
            effects.released(request.owner);
            effects.held(holder, moment);
            lock.remove(request.owner);
        }
        Some(holder) => effects.updated(holder, moment),
        None => {}
    }
    Ok((left, true))
}

/// Takes back a request that still waits.
fn withdraw(queue: &mut Queue, request: &Release<'_>, effects: &mut Effects) {
    if let Share::Named(id) = request.share
        && let Some((ticket, _)) = queue.find(request.owner, id)
    {
        queue.remove(ticket);
        effects.withdrawn(ticket);
    }
}

/// A release that the primary or the log tells of: it happened, whatever the clock says here.
pub fn release_as_told(
    lock: &mut Lock,
    request: &Release<'_>,
    effects: &mut Effects,
) -> Result<u64, Refusal> {
    let left = match give_back(lock, request, |_| true)? {
        GaveBack::Nothing(holds) => return Ok(holds),
        GaveBack::Some(left) => left,
    };
    if left == 0 {
        lock.remove(request.owner);
        effects.released(request.owner);
    }
    effects.replication = Replication::Verbatim;
    Ok(left)
}

enum GaveBack {
    /// There was no such hold: the holds as they are.
    Nothing(u64),
    /// The holds that are left. A holder with none must be removed.
    Some(u64),
}

fn give_back(
    lock: &mut Lock,
    request: &Release<'_>,
    counts: impl Fn(&Holder) -> bool,
) -> Result<GaveBack, Refusal> {
    let holder = match holder_mut(lock, request.owner, request.fence, counts) {
        // To take back a hold that is not there is no error, so that it can be asked for again.
        Err(Refusal::NotHeld | Refusal::NotOwner) if matches!(request.share, Share::Named(_)) => {
            return Ok(GaveBack::Nothing(0));
        }
        holder => holder?,
    };
    match request.share {
        Share::One => holder.give_back_one(),
        Share::All => holder.give_back_all(),
        Share::Named(name) if holder.give_back_named(name) => {}
        Share::Named(_) => return Ok(GaveBack::Nothing(holder.holds())),
    }
    Ok(GaveBack::Some(holder.holds()))
}
