//! When queues are looked at: a waiter's time is up, a lease ends, a client has gone, or something happened
//! to the key that was no command of ours.
//!
//! Callbacks only set an alarm. What follows from it is done by a timer, or by the cron if the timer is
//! late: a grant that is written from a callback of a DEL would stand before that DEL in the log.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::commands::entry::Failure;
use crate::module::cluster::{self, Location};
use crate::module::state;
use crate::module::stats::add;
use crate::redis::api::required;
use crate::redis::ctx::{self, Ctx, Flags, Text};
use crate::txn::{Change, lease_moment};
use crate::waiting::blocked_clients::{self, Hold, Told};
use dlock_core::{Effects, Holds, Instant, LockName, Release, on_timer, rollback_grant};

/// A server that cannot grant now is asked again so much later.
const RETRY_MS: u64 = 50;
/// No timer is set further ahead: the server's timers go by the wall clock, which may jump.
const FARTHEST_MS: u64 = 60_000;
/// The work of one slice: clients wait for no more.
const SLICE_MS: u64 = 2;
/// And for no more than this when exactness needs it: thousands of queues, emptied by a FLUSHALL a moment ago.
const PATIENCE_MS: u64 = 1_000;

/// The timer for the next alarm.
pub struct Alarm {
    /// The timer, and what it is set for.
    set: Option<(raw::RedisModuleTimerID, Instant)>,
    /// Grants could not be given back: when to try again.
    not_before: Instant,
    /// A context to set timers with, where the server gives none.
    detached: Option<Detached>,
}

impl Alarm {
    pub const fn unset() -> Self {
        Self {
            set: None,
            not_before: Instant::DISTANT_PAST,
            detached: None,
        }
    }
}

struct Detached(*mut raw::RedisModuleCtx);

/// Prepares for callbacks without a context. At load.
pub fn prepare(ctx: Ctx<'_>) {
    // SAFETY: the context is valid; the detached one stays valid as long as the module is loaded.
    let detached = unsafe { required(raw::RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) };
    state::with(|state| state.alarm.detached = Some(Detached(detached)));
}

/// Sets the timer for what is due first, if it is not set for that or for something earlier.
pub fn arm() {
    let Some((detached, old, at)) = state::with(|state| {
        let owed = (!state.undeliverable.is_empty()).then_some(state.alarm.not_before);
        let at = owed.into_iter().chain(state.waiting.next_wakeup()).min()?;
        let old = state.alarm.set;
        let in_time = old.is_some_and(|(_, set)| set <= at);
        (!in_time).then_some((state.alarm.detached.as_ref()?.0, old, at))
    }) else {
        return;
    };
    let period_ms = ctx::now().ms_until_rounded_up(at).min(FARTHEST_MS);
    // SAFETY: the context lives as long as the module. The old timer is not the one that is firing: that
    // one is forgotten first of all.
    let id = unsafe {
        if let Some((old, _)) = old {
            required(raw::RedisModule_StopTimer)(detached, old, std::ptr::null_mut());
        }
        let period_ms = i64::try_from(period_ms).unwrap_or(0);
        required(raw::RedisModule_CreateTimer)(detached, period_ms, Some(timer), std::ptr::null_mut())
    };
    state::with(|state| state.alarm.set = Some((id, at)));
}

unsafe extern "C" fn timer(raw: *mut raw::RedisModuleCtx, _: *mut c_void) {
    state::with(|state| state.alarm.set = None);
    // SAFETY: the server passes a context that is valid during the call.
    ring(unsafe { Ctx::new(raw) });
}

/// Looks after what is due, a slice of it.
pub fn ring(ctx: Ctx<'_>) {
    ring_for(ctx, SLICE_MS);
}

/// Looks after all that is due: before a search for deadlocks, which must see things as they are.
pub fn ring_all(ctx: Ctx<'_>) {
    ring_for(ctx, PATIENCE_MS);
}

fn ring_for(ctx: Ctx<'_>, slice_ms: u64) {
    if state::with(|state| state.has_no_waiters()) {
        return;
    }
    let flags = ctx.flags();
    let home = ctx.db();
    let now = ctx::now();
    let slice_end = now.after_ms(slice_ms);
    undo_all(ctx, flags);
    while let Some(name) = state::with(|state| state.waiting.next_due(now)) {
        if ctx.select_db(name.db) {
            ctx.with_text(&name.key, |text| look(ctx, &name, text, flags));
        } else {
            dismiss(&name, "ERR the database of this lock does not exist any more");
        }
        if ctx::now() >= slice_end {
            break;
        }
    }
    ctx.select_db(home);
    arm();
}

/// What a look at a key says about grants.
enum Verdict {
    Grant,
    /// Clients are paused, too few replicas, the disk is full, not the primary...
    NotNow,
    /// The key is served elsewhere: what to tell the waiters.
    Elsewhere(String),
}

fn look(ctx: Ctx<'_>, name: &LockName, text: Text<'_>, flags: Flags) {
    match verdict(ctx, text, flags) {
        Verdict::Grant => tend_to(ctx, name, text, flags),
        Verdict::NotNow => {
            give_up_waiting(name);
            state::with(|state| state.waiting.defer(name, ctx::now().after_ms(RETRY_MS)));
        }
        Verdict::Elsewhere(error) => dismiss(name, &error),
    }
}

fn verdict(ctx: Ctx<'_>, text: Text<'_>, flags: Flags) -> Verdict {
    if !flags.is_primary() {
        // Redis has done so itself. Valkey 9 keeps a module's clients when a cluster node becomes a replica.
        return Verdict::Elsewhere("UNBLOCKED this server is a replica now, ask the primary".to_owned());
    }
    if !flags.decides() || ctx.is_paused() {
        return Verdict::NotNow;
    }
    match ctx.probe(text) {
        Ok(()) => Verdict::Grant,
        Err(error) if !flags.is_cluster() || is_temporary(&error) => Verdict::NotNow,
        Err(error) if error.contains("down") => {
            Verdict::Elsewhere("CLUSTERDOWN the cluster is down, try again".to_owned())
        }
        Err(_) => Verdict::Elsewhere(match cluster::locate(ctx, text.bytes()) {
            Location::Elsewhere { slot, address } => format!("MOVED {slot} {address}"),
            Location::Here | Location::Unknown => {
                "TRYAGAIN the slot of this key is on the move, try again".to_owned()
            }
        }),
    }
}

/// The server's own errors that have nothing to do with where the key is.
fn is_temporary(error: &str) -> bool {
    [
        "NOREPLICAS",
        "MISCONF",
        "READONLY",
        "MASTERDOWN",
        "OOM",
        "LOADING",
    ]
    .iter()
    .any(|code| error.contains(code))
}

fn tend_to(ctx: Ctx<'_>, name: &LockName, text: Text<'_>, flags: Flags) {
    let Ok(change) = Change::of_our_own(ctx, text, flags) else {
        return;
    };
    let step = |stored: &mut crate::module::data_type::Stored, effects: &mut Effects| {
        state::with(|state| {
            state.step(
                name.db,
                &name.key,
                &mut stored.lock,
                change.moment(),
                |lock, queue, fences| {
                    on_timer(lock, queue, change.moment(), fences, effects);
                },
            );
        });
        Ok(())
    };
    if let Err(Failure::WrongType) = change.perform(step) {
        dismiss(name, &Failure::WrongType.to_string());
    }
}

fn give_up_waiting(name: &LockName) {
    let moment = lease_moment();
    let mut effects = Effects::default();
    state::with(|state| state.waiting.time_out_waiters(name, &moment, &mut effects));
    wake(&mut effects);
}

fn dismiss(name: &LockName, error: &str) {
    for ticket in state::with(|state| state.waiting.drain(name)) {
        blocked_clients::answer(ticket, Told::Error(error.to_owned()));
    }
}

/// Tells the clients of a step's answers.
pub fn wake(effects: &mut Effects) {
    for wake in effects.wakes.drain(..) {
        state::with(|state| state.counters.answered(&wake.answer));
        blocked_clients::answer(wake.ticket, Told::Answer(wake.answer));
    }
}

/// Gives back what was granted to clients that had gone, when that may be written.
fn undo_all(ctx: Ctx<'_>, flags: Flags) {
    for hold in state::with(|state| std::mem::take(&mut state.undeliverable)) {
        if !ctx.select_db(hold.name.db) {
            continue;
        }
        let kept = ctx.with_text(&hold.name.key, |text| match verdict(ctx, text, flags) {
            Verdict::Grant => {
                give_back(ctx, text, flags, &hold);
                false
            }
            Verdict::NotNow => true,
            Verdict::Elsewhere(_) => false,
        });
        if kept {
            state::with(|state| {
                state.undeliverable.push(hold);
                state.alarm.not_before = ctx::now().after_ms(RETRY_MS);
            });
        }
    }
}

/// A client asks again for a hold that could not be given back yet: now it is wanted.
pub fn keep(db: c_int, key: &[u8], owner: &[u8], request_id: &[u8]) {
    state::with(|state| {
        state.clients.receive_elsewhere(db, key, owner, request_id);
        state.undeliverable.retain(|hold| {
            let same_lock = hold.name.db == db && *hold.name.key == *key;
            !(same_lock && *hold.owner == *owner && hold.request_id.as_deref() == Some(request_id))
        });
    });
}

fn give_back(ctx: Ctx<'_>, text: Text<'_>, flags: Flags, hold: &Hold) {
    let Ok(change) = Change::of_our_own(ctx, text, flags) else {
        return;
    };
    let share = hold.request_id.as_deref().map_or(Holds::One, Holds::ById);
    let request = Release {
        owner: &hold.owner,
        fence: Some(hold.fence),
        holds: share,
    };
    let outcome = change.perform(|stored, effects| {
        state::with(|state| {
            state.step(
                hold.name.db,
                &hold.name.key,
                &mut stored.lock,
                change.moment(),
                |lock, queue, fences| {
                    Ok(rollback_grant(
                        lock,
                        queue,
                        &request,
                        change.moment(),
                        fences,
                        effects,
                    ))
                },
            )
        })
    });
    if let Ok(true) = outcome {
        state::with(|state| add(&mut state.counters.grants_rolled_back));
    }
}
