//! Drives queued waiters: timeouts, expired leases, waiters that left, and keys that other commands changed.

use dlock_core::{Acquire, Effects, LockName};

use crate::background::gate::{GrantGate, RETRY_MS};
use crate::background::pass::Pass;
use crate::background::rollback;
use crate::change::lock_change::{Cause, decide};
use crate::change::perform::perform;
use crate::redis::{Ctx, Flags, RString};
use crate::state::clock::{self, Slice};
use crate::state::error::Error;
use crate::state::module_state::HasState;
use crate::state::wait_timer;

const SLICE_MS: u64 = 2;
const ROLLBACK_SLICE_MS: u64 = 1;
/// The most queues that one request processes, which takes some milliseconds. A FLUSHALL may have emptied thousands.
const MAX_QUEUES: usize = 500;
/// To answer this many waiters of a queue takes as long as to look at another queue.
const ANSWERS_PER_QUEUE: usize = 4;

/// Runs due queues before an ACQUIRE. Returns whether a search for deadlocks may follow.
pub fn process_before(ctx: &mut Ctx<'_>, flags: Flags, request: &Acquire<'_>) -> bool {
    let state = ctx.state();
    let may_close_cycle = request.wait.is_some()
        && state.server.policy().detect_deadlocks
        && state.server.wait_table.involves(request.owner);
    if flags.is_cluster() {
        // Newer servers open every key in the slot of the running command: the timer does it.
        let is_current = !may_close_cycle || !state.is_due(clock::now());
        wait_timer::arm(ctx);
        return is_current;
    }
    let now = clock::now();
    if state.schedule.next_pass > now {
        // Requests may come in thousands at once: their slices must not add up. The timer does the rest.
        let is_current = !may_close_cycle || !state.is_due(now);
        wait_timer::arm(ctx);
        return is_current;
    }
    let is_current = if may_close_cycle {
        process_all_due(ctx)
    } else {
        process_due_of(ctx, &Slice::of_ms(SLICE_MS));
        true
    };
    let (state, now) = (ctx.state(), clock::now());
    if state.is_due(now) {
        state.schedule.next_pass = now.after_ms(SLICE_MS);
    }
    is_current
}

/// Processes what is due, a slice of it.
pub fn process_due(ctx: &mut Ctx<'_>, pass: &Pass) {
    process_due_of(ctx, &pass.slice(SLICE_MS));
}

fn process_due_of(ctx: &mut Ctx<'_>, slice: &Slice) {
    process_due_while(ctx, |processed| processed == 0 || !slice.is_over());
}

/// Processes all that is due, before a search for deadlocks, which must not see expired leases. Returns whether all is
/// done.
fn process_all_due(ctx: &mut Ctx<'_>) -> bool {
    process_due_while(ctx, |processed| processed < MAX_QUEUES)
}

/// Returns whether nothing is due any more. Otherwise the timer goes on. `goes_on`: by the queues that were processed.
fn process_due_while(ctx: &mut Ctx<'_>, goes_on: impl Fn(usize) -> bool) -> bool {
    if ctx.state().has_no_waiters() {
        return true;
    }
    let (flags, home) = (ctx.flags(), ctx.db());
    let now = clock::now();
    let mut processed = 0_usize;
    rollback::roll_back_grants(ctx, flags, &Slice::of_ms(ROLLBACK_SLICE_MS));
    let is_done = loop {
        let Some(name) = ctx.state().server.wait_table.next_due(now) else {
            break true;
        };
        if !goes_on(processed) {
            break false;
        }
        let waiters = ctx.state().server.wait_table.waiters();
        if ctx.select_db(name.db) {
            process_lock(ctx, &name, flags);
        } else {
            let error = "ERR the database of this lock does not exist any more";
            turn_away_waiters(ctx, &name, &RString::new(&name.key), error);
        }
        let answered = waiters.saturating_sub(ctx.state().server.wait_table.waiters());
        let as_queues = answered.div_euclid(ANSWERS_PER_QUEUE);
        processed = processed.saturating_add(as_queues).saturating_add(1);
    };
    if !ctx.select_db(home) {
        ctx.state().internal_error("the database of a call is gone");
    }
    wait_timer::arm(ctx);
    is_done
}

fn process_lock(ctx: &mut Ctx<'_>, name: &LockName, flags: Flags) {
    let key = RString::new(&name.key);
    match GrantGate::check(ctx, key.borrow(), flags) {
        GrantGate::Open => run_timer_step(ctx, name, &key, flags),
        GrantGate::Later => {
            time_out_waiters(ctx, name, &key);
            let retry = clock::now().after_ms(RETRY_MS);
            ctx.state().server.wait_table.defer(name.as_ref(), retry);
        }
        GrantGate::Elsewhere(error) | GrantGate::Unavailable(error) => {
            turn_away_waiters(ctx, name, &key, &error)
        }
    }
}

fn run_timer_step(ctx: &mut Ctx<'_>, name: &LockName, key: &RString, flags: Flags) {
    let outcome = decide(ctx, key.borrow(), flags, Cause::Timer, |transition| {
        transition.on_timer();
        Ok(())
    });
    if let Err(error @ Error::WrongType) = outcome {
        turn_away_waiters(ctx, name, key, &error.to_string());
    }
}

/// Timeouts are also kept while nothing can be granted.
fn time_out_waiters(ctx: &mut Ctx<'_>, name: &LockName, key: &RString) {
    let (name, mut effects) = (name.as_ref(), Effects::default());
    let server = &mut ctx.state().server;
    server.time_out_waiters(name, clock::now(), &mut effects);
    perform(ctx, (key.borrow(), name), true, &mut effects);
}

/// Answers all waiters of a lock with an error.
fn turn_away_waiters(ctx: &mut Ctx<'_>, name: &LockName, key: &RString, error: &str) {
    let (name, mut effects) = (name.as_ref(), Effects::default());
    let state = ctx.state();
    state
        .server
        .turn_away_waiters(name, error, clock::now(), &mut effects);
    let dropped = &mut state.schedule.dropped_waiters;
    *dropped = dropped.saturating_add(effects.wakes.len());
    perform(ctx, (key.borrow(), name), true, &mut effects);
}
