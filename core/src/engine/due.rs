//! Drives queued waiters: timeouts, expired leases, waiters that left, and keys that other commands changed.

use super::error::Error;
use super::gate::{self, RETRY_MS};
use super::host::{Flags, Host, WriteCheck};
use super::internal_error::internal_error;
use super::lock_change::{Cause, decide};
use super::pass::{Pass, Slice};
use super::perform::{Origin, perform};
use super::{refused, rollback, wait_timer};
use crate::effects::Effects;
use crate::names::LockName;
use crate::wire::Acquire;

const SLICE_MS: u64 = 2;
const ROLLBACK_SLICE_MS: u64 = 1;
/// The most queues that one request processes, which takes some milliseconds. A FLUSHALL may have emptied thousands.
const MAX_QUEUES: usize = 500;
/// To answer this many waiters of a queue takes as long as to look at another queue.
const ANSWERS_PER_QUEUE: usize = 4;

/// Runs due queues before an ACQUIRE. Returns whether a search for deadlocks may follow.
pub fn process_before<H: Host>(host: &mut H, flags: Flags, request: &Acquire<'_>) -> bool {
    let now = host.now();
    let state = host.state();
    let may_close_cycle = request.wait.is_some()
        && state.server.policy().detect_deadlocks
        && state.server.wait_table.involves(request.owner);
    // Newer servers open every key in the slot of the running command. And requests may come in thousands at once: their
    // slices must not add up. The timer does the rest.
    if flags.is_cluster || state.schedule.next_pass > now {
        let is_current = !may_close_cycle || !state.is_due(now);
        wait_timer::arm(host);
        return is_current;
    }
    let is_current = if may_close_cycle {
        process_all_due(host)
    } else {
        let slice = Slice::of_ms(SLICE_MS, host);
        process_due_of(host, &slice);
        true
    };
    let now = host.now();
    let state = host.state();
    if state.is_due(now) {
        state.schedule.next_pass = now.after_ms(SLICE_MS);
    }
    is_current
}

/// Processes what is due, a slice of it.
pub(super) fn process_due(host: &mut impl Host, pass: &Pass) {
    let slice = pass.slice(SLICE_MS, host);
    process_due_of(host, &slice);
}

fn process_due_of<H: Host>(host: &mut H, slice: &Slice) {
    process_due_while(host, |processed, host: &H| processed == 0 || !slice.is_over(host));
}

/// Processes all that is due, before a search for deadlocks, which must not see expired leases. Returns whether all is
/// done.
fn process_all_due<H: Host>(host: &mut H) -> bool {
    process_due_while(host, |processed, _: &H| processed < MAX_QUEUES)
}

/// Returns whether nothing is due any more. Otherwise the timer goes on. `goes_on`: by the queues that were processed.
fn process_due_while<H: Host>(host: &mut H, goes_on: impl Fn(usize, &H) -> bool) -> bool {
    if host.state().has_no_waiters() {
        return true;
    }
    let (flags, home) = (host.flags(), host.db());
    let now = host.now();
    let mut processed = 0_usize;
    let slice = Slice::of_ms(ROLLBACK_SLICE_MS, host);
    rollback::roll_back_grants(host, flags, &slice);
    refused::retry(host, now);
    let is_done = loop {
        let Some(name) = host.state().server.wait_table.next_due(now) else {
            break true;
        };
        if !goes_on(processed, host) {
            break false;
        }
        let waiters = host.state().server.wait_table.waiters();
        let key = H::make_name(&name.key);
        if host.select_db(name.db) {
            process_lock(host, &name, H::name(&key), flags);
        } else {
            let error = "ERR the database of this lock does not exist any more";
            turn_away_waiters(host, &name, H::name(&key), error);
        }
        let answered = waiters.saturating_sub(host.state().server.wait_table.waiters());
        let as_queues = answered.div_euclid(ANSWERS_PER_QUEUE);
        processed = processed.saturating_add(as_queues).saturating_add(1);
    };
    if !host.select_db(home) {
        internal_error(host, "the database of a call is gone");
    }
    wait_timer::arm(host);
    is_done
}

pub(crate) fn process_lock<H: Host>(host: &mut H, name: &LockName, key: H::Name<'_>, flags: Flags) {
    match gate::check(host, key, flags) {
        WriteCheck::Accepted => {
            refused::end(host);
            run_timer_step(host, name, key, flags);
        }
        WriteCheck::Refused => {
            time_out_waiters(host, name, key);
            refused::suspend(host, name);
        }
        WriteCheck::Later => {
            refused::end(host);
            time_out_waiters(host, name, key);
            let retry = host.now().after_ms(RETRY_MS);
            host.state().server.wait_table.defer(name.as_ref(), retry);
        }
        WriteCheck::Elsewhere(error) | WriteCheck::Unavailable(error) => {
            turn_away_waiters(host, name, key, &error)
        }
    }
}

fn run_timer_step<H: Host>(host: &mut H, name: &LockName, key: H::Name<'_>, flags: Flags) {
    let outcome = decide(host, key, flags, Cause::Timer, |transition| {
        transition.on_timer();
        Ok(())
    });
    if let Err(error @ Error::WrongType) = outcome {
        turn_away_waiters(host, name, key, &error.to_string());
    }
}

/// Timeouts are also kept while nothing can be granted.
fn time_out_waiters<H: Host>(host: &mut H, name: &LockName, key: H::Name<'_>) {
    let (name, mut effects) = (name.as_ref(), Effects::default());
    let now = host.now();
    host.state().server.time_out_waiters(name, now, &mut effects);
    perform(host, (key, name), Origin::Decided, &mut effects);
}

/// Answers all waiters of a lock with an error.
fn turn_away_waiters<H: Host>(host: &mut H, name: &LockName, key: H::Name<'_>, error: &str) {
    let (name, mut effects) = (name.as_ref(), Effects::default());
    let now = host.now();
    let state = host.state();
    state.server.turn_away_waiters(name, error, now, &mut effects);
    let dropped = &mut state.schedule.dropped_waiters;
    *dropped = dropped.saturating_add(effects.wakes.len());
    perform(host, (key, name), Origin::Decided, &mut effects);
}
