//! What nobody is told before replicas have it, with `dlock.min-sync-replicas`: grants, and longer leases.
//!
//! ```text
//! change -> held back -> its offset is known, replicas are asked -> acknowledged: told
//!                                                                -> not in time: NOREPLICAS, a grant is rolled back
//! ```
//!
//! The request has an inbox, as one that waits in a queue. Its answer comes later, that is all: a client that is lost, an
//! inbox that ends and a grant that is rolled back are what they are for hand-overs.

use super::answering::deliver;
use super::counters::increment;
use super::gate::DEMOTED;
use super::held_queue::Held;
use super::host::{Host, Process};
use super::wait_timer;
use crate::effects::{Answer, Effects, Wake};
use crate::names::LockNameRef;
use crate::transition::Policy;
use crate::wire::{Error, Granted};

/// Rejects what gives, repeats or lengthens a hold where the client must be told at once, because it cannot be blocked.
pub fn check_told_at_once(process: &mut impl Process) -> Result<(), Error> {
    let holds_back = process.state().server.holds_back();
    if holds_back {
        Err(Error::CannotHoldBack)
    } else {
        Ok(())
    }
}

/// Holds back what a transition tells of holds. Its change has been replicated.
#[cold]
pub(super) fn hold_back(process: &mut impl Process, lock: LockNameRef<'_>, effects: &mut Effects) {
    let now = effects.clock.now;
    let is_grant = |wake: &mut Wake| matches!(wake.answer, Answer::Granted(_));
    let mut held: Vec<_> = effects.wakes.extract_if(.., is_grant).collect();
    let handovers = held.len();
    held.extend(effects.own_answer.take());
    for (place, wake) in held.into_iter().enumerate() {
        let is_own = place == handovers;
        let mut repeats = effects.repeated.clone().filter(|_| is_own);
        // Who has sent the request again is told: nobody was yet.
        if repeats.is_some()
            && let Some(former) = process.state().held_back.take_former(lock, &wake)
        {
            answer(process, &former, Answer::Rejected(Error::Replaced));
            repeats = former.repeats;
        }
        let state = process.state();
        state.held_back.0.push_back(Held {
            lock: lock.to_name(),
            wake,
            repeats,
            since: now,
            until: now.after_ms(state.server.policy().sync_timeout_ms),
            offset: None,
        });
        look_soon(process);
    }
}

/// Looks at the replicas at the end of this pass of the server's loop, if anything depends on them: something has changed,
/// or a replica is about to acknowledge it. Then the changes of the pass are in the stream of replication, and one request
/// for acknowledgements is for all of them.
pub fn look_soon(process: &mut impl Process) {
    let state = process.state();
    let depends = state.server.holds_back() || state.held_back.count() > 0;
    if depends && !std::mem::replace(&mut state.schedule.has_sync_timer, true) {
        process.set_sync_timer();
    }
}

/// The settings are these from now on, also for what is held back.
pub fn set_policy(process: &mut impl Process, policy: Policy) {
    process.state().server.set_policy(policy);
    look_soon(process);
    wait_timer::arm(process);
}

/// The timer fires that [`Process::set_sync_timer`] has set. Nothing else may be replicated here: see
/// [`Host::request_acknowledgements`].
pub fn on_sync_timer(host: &mut impl Host) {
    host.state().schedule.has_sync_timer = false;
    let Some((offset, acknowledged)) = host.replica_offsets() else {
        return;
    };
    let state = host.state();
    let has_changes = state.held_back.mark(offset);
    let by_enough = state.server.observe_replicas(acknowledged);
    let is_told = |held: &Held| held.offset.is_some_and(|offset| Some(offset) <= by_enough);
    while let Some(held) = host.state().held_back.take_first_if(is_told) {
        let waited_ms = held.since.ms_until(host.now());
        host.state().counters.held_back_ms.record(waited_ms);
        let told = told_after(&held.wake.answer, waited_ms);
        if !answer(host, &held, told) {
            give_up(host, held);
        }
    }
    wait_timer::arm(host);
    if has_changes && !host.is_paused() {
        host.request_acknowledgements();
    }
}

/// Gives up what replicas have not acknowledged in time.
pub(super) fn time_out(process: &mut impl Process) {
    let now = process.now();
    while let Some(held) = process.state().held_back.take_first_if(|held| held.until <= now) {
        let state = process.state();
        state.server.replicas.are_late(held.offset);
        increment(&mut state.counters.sync_timeouts);
        let error = Error::FewReplicas(state.server.policy().min_sync_replicas);
        answer(process, &held, Answer::Rejected(error));
        give_up(process, held);
    }
}

/// This server is a replica now. Nobody here knows what becomes of the holds.
pub(super) fn end_all(process: &mut impl Process) {
    while let Some(held) = process.state().held_back.take_first_if(|_| true) {
        answer(process, &held, Answer::Elsewhere(DEMOTED.into()));
    }
}

/// False if nobody waits for the answer any more.
fn answer(process: &mut impl Process, held: &Held, answer: Answer) -> bool {
    let now = process.now();
    let server = &process.state().server;
    let is_awaited = server.inboxes.awaits(&held.wake);
    if is_awaited {
        let mut effects = Effects::default();
        effects.clock = server.clock(now);
        effects.repeated = held.repeats.clone();
        effects.wake(held.wake.ticket, held.wake.waiter.clone(), answer);
        deliver(process, &mut effects);
    }
    is_awaited
}

/// Nobody was told of a grant, nor will be.
fn give_up(process: &mut impl Process, held: Held) {
    if held.repeats.is_none() {
        let inboxes = &mut process.state().server.inboxes;
        inboxes.give_up(held.lock, held.wake, held.since);
    }
}

/// An answer that is told this much later.
fn told_after(answer: &Answer, ms: u64) -> Answer {
    match answer {
        Answer::Granted(granted) => Answer::Granted(Granted {
            lease_ms: granted.lease_ms.saturating_sub(ms),
            waited_ms: granted.waited_ms.saturating_add(ms),
            ..*granted
        }),
        Answer::Extended(lease_ms) => Answer::Extended(lease_ms.saturating_sub(ms)),
        other => other.clone(),
    }
}
