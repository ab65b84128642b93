//! Carries out the effects of a transition, in one order.

use std::rc::Rc;

use super::announcements::announce;
use super::answering::deliver;
use super::error::Error;
use super::held_back::hold_back;
use super::host::Host;
use super::internal_error::internal_error;
use super::replicate::replicate;
use super::state::EngineState;
use super::wait_timer;
use crate::effects::{Answer, Effects};
use crate::names::LockNameRef;
use crate::wire::Event;

/// Where a change comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was decided here.
    Decided,
    /// The primary or the AOF sent it.
    Received,
}

/// Carries out the effects of a change whose lock is stored: `lock` is its name for the core.
pub(super) fn perform<H: Host>(
    host: &mut H,
    (name, lock): (H::Name<'_>, LockNameRef<'_>),
    origin: Origin,
    effects: &mut Effects,
) {
    // Before the module's keyspace events, which may make other modules run commands that grant this waiter.
    if let Some(call) = effects.parked.take() {
        host.block(call);
    }
    replicate(host, name, effects);
    if origin == Origin::Decided {
        count(host.state(), lock, effects);
        if host.state().server.cluster.is_some() {
            announce(host, false);
        }
    }
    if host.state().server.holds_back() {
        hold_back(host, lock, effects);
    }
    deliver(host, effects);
    for event in &effects.events {
        host.notify(*event, name);
    }
    if effects.may_be_due {
        wait_timer::arm(host);
    }
}

/// The server did not take the lock, so that the transition came to nothing. The reply to the request is an error: it
/// does not wait, neither with BLOCK nor with QUEUE.
#[cold]
pub(super) fn fail(host: &mut impl Host, lock: LockNameRef<'_>, effects: &mut Effects) {
    internal_error(host, "the server did not store a lock, which was not granted");
    host.state().server.undo_queued(lock, effects);
    let error: Rc<str> = Error::NotStored.to_string().into();
    for wake in &mut effects.wakes {
        wake.answer = Answer::Elsewhere(Rc::clone(&error));
    }
    deliver(host, effects);
    wait_timer::arm(host);
}

fn count(state: &mut EngineState, lock: LockNameRef<'_>, effects: &Effects) {
    // A lock is contended if it has waiters, or had some that this transition answered.
    let is_contended = effects.events.contains(&Event::Expired)
        && (!effects.wakes.is_empty() || state.server.wait_table.queue(lock).is_some());
    state.counters.record(effects, is_contended);
}
