//! Carries out the effects of a transition, in one order.

use std::ffi::CStr;
use std::rc::Rc;

use dlock_core::{Answer, Effects, Event, LockNameRef};

use crate::change::{APPLY, readers};
use crate::redis::{Ctx, RStr};
use crate::state::cluster::fences;
use crate::state::error::Error;
use crate::state::module_state::{HasState, ModuleState};
use crate::state::wait_timer;

/// Carries out the effects of a change whose lock is stored: `lock` is its name for the core. `is_decision`: it was decided
/// here, not received from the primary or the AOF.
pub fn perform(
    ctx: &mut Ctx<'_>,
    (name, lock): (RStr<'_>, LockNameRef<'_>),
    is_decision: bool,
    effects: &mut Effects,
) {
    // Before the module's keyspace events, which may make other modules run commands that grant this waiter.
    if let Some(call) = effects.parked.take() {
        readers::block(ctx, call);
    }
    replicate(ctx, name, effects);
    if is_decision {
        count(ctx.state(), lock, effects);
        if ctx.state().server.cluster.is_some() {
            fences::announce(ctx, false);
        }
    }
    readers::deliver(ctx, effects);
    notify_keyspace(ctx, name, effects);
    if effects.may_be_due {
        wait_timer::arm(ctx);
    }
}

/// The server did not take the lock, so that the transition came to nothing. The reply to the request is an error: it
/// does not wait, neither with BLOCK nor with QUEUE.
#[cold]
pub fn fail(ctx: &mut Ctx<'_>, lock: LockNameRef<'_>, effects: &mut Effects) {
    let state = ctx.state();
    state.internal_error("the server did not store a lock, which was not granted");
    state.server.undo_queued(lock, effects);
    let error: Rc<str> = Error::NotStored.to_string().into();
    for wake in &mut effects.wakes {
        wake.answer = Answer::Elsewhere(Rc::clone(&error));
    }
    readers::deliver(ctx, effects);
    wait_timer::arm(ctx);
}

/// Sends the encoded change. One that is not encoded is the running command itself: what a replica has received, or what
/// the server only counts for its next snapshot, and then discards.
fn replicate(ctx: &mut Ctx<'_>, name: RStr<'_>, effects: &Effects) {
    if !effects.is_changed {
        return;
    }
    match effects.change() {
        Some(change) => ctx.replicate(APPLY, name, change),
        None => ctx.replicate_verbatim(),
    }
    if effects.changes_holders() {
        ctx.signal_modified(name);
    }
}

fn count(state: &mut ModuleState, lock: LockNameRef<'_>, effects: &Effects) {
    // A lock is contended if it has waiters, or had some that this transition answered.
    let is_contended = effects.events.contains(&Event::Expired)
        && (!effects.wakes.is_empty() || state.server.wait_table.queue(lock).is_some());
    state.counters.record(effects, is_contended);
}

fn notify_keyspace(ctx: &mut Ctx<'_>, name: RStr<'_>, effects: &Effects) {
    for event in &effects.events {
        let event: &CStr = match event {
            Event::Acquired => c"dlock.acquired",
            Event::Released => c"dlock.released",
            Event::Extended => c"dlock.extended",
            Event::Expired => c"dlock.expired",
        };
        ctx.notify(event, name);
    }
}
