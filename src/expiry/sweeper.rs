//! What the module does by itself: removes locks whose leases have ended, finds strays, frees what is known of
//! emptied databases, and passes on what is no lock. The cron starts it; a timer goes on while there is work, a
//! slice at a time.

use std::ffi::c_void;

use redis_module::raw;

use crate::expiry::untracked;
use crate::module::cluster;
use crate::module::fences;
use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::{self, Ctx, Flags, Text};
use crate::redis::scan::Walk;
use crate::replication::targets;
use crate::txn::Change;
use crate::waiting::due;
use dlock_core::expiry::DueLock;
use dlock_core::{Instant, expire_holders};

/// The work of one slice: a client waits for no more.
const SLICE_MS: u64 = 1;
/// The pause between slices, in which clients are served.
const PAUSE_MS: u64 = 1;
/// Reading the clock costs as much as removing a small lock: not after each.
const LOCKS_A_LOOK: usize = 8;
/// The pause between two reports during a grace.
const SYNC_EVERY_MS: u64 = 1_000;
/// The pause between two looks around.
const LOOK_EVERY_MS: u64 = 1_000;
/// The pause after a walk through the keyspace that found nothing: the strays are being freed.
const REST_MS: u64 = 10_000;

/// What is planned.
pub struct Schedule {
    /// Replicas and the log are to be told how things stand.
    pub sync_due: bool,
    next_sync: Instant,
    next_look: Instant,
    walk: Option<Walk>,
    rest_until: Instant,
    /// Cron and timer may be due in one pass of the server's loop: clients would wait for both.
    next_slice: Instant,
    timer_is_set: bool,
}

impl Schedule {
    pub const fn new() -> Self {
        Self {
            sync_due: false,
            next_sync: Instant::DISTANT_PAST,
            next_look: Instant::DISTANT_PAST,
            walk: None,
            rest_until: Instant::DISTANT_PAST,
            next_slice: Instant::DISTANT_PAST,
            timer_is_set: false,
        }
    }
}

/// One slice of everything. From the cron and from the timer.
pub fn tick(ctx: Ctx<'_>) {
    let flags = ctx.flags();
    if flags.is_loading() {
        return;
    }
    let now = ctx::now();
    state::with(|state| state.settle_grace(flags, now));
    if flags.is_primary() {
        fences::raise();
    }
    look_around(ctx, flags, now);
    let mut more = find_strays(ctx, now) | free_emptied(now);
    due::ring(ctx);
    if flags.is_primary() && !ctx.is_paused() {
        sync(ctx, now);
        more |= remove_ended(ctx, flags, now);
    }
    if more {
        go_on(ctx);
    }
}

/// Once a second, who listens, and which slots of the cluster are still here.
fn look_around(ctx: Ctx<'_>, flags: Flags, now: Instant) {
    if state::with(|state| state.schedule.next_look > now) {
        return;
    }
    state::with(|state| state.schedule.next_look = now.after_ms(LOOK_EVERY_MS));
    targets::look(ctx);
    if flags.is_cluster() {
        cluster::look(ctx);
        state::with(|state| state.waiting.schedule_db(None, Instant::DISTANT_PAST));
    }
}

/// Has replicas and the log told how things stand, in the next pass of the server's loop.
pub fn sync_soon(ctx: Ctx<'_>) {
    state::with(|state| state.schedule.sync_due = true);
    go_on(ctx);
}

/// Removes holders whose lease has ended, unless it has just done so. Whether there are more.
fn remove_ended(ctx: Ctx<'_>, flags: Flags, now: Instant) -> bool {
    if state::with(|state| state.schedule.next_slice > now) {
        return state::with(|state| state.registry.is_due(now));
    }
    let slice_end = now.after_ms(SLICE_MS);
    loop {
        for _ in 0..LOCKS_A_LOOK {
            let Some(due) = state::with(|state| state.registry.take_due(now)) else {
                return false;
            };
            if ctx.select_db(due.db) {
                ctx.with_text(due.name.as_bytes(), |name| {
                    remove_ended_from(ctx, name, flags, &due)
                });
            }
        }
        let until = ctx::now();
        if until >= slice_end {
            return state::with(|state| {
                state.schedule.next_slice = until.after_ms(PAUSE_MS);
                state.registry.is_due(now)
            });
        }
    }
}

/// A name that is wrong by now changes nothing.
fn remove_ended_from(ctx: Ctx<'_>, name: Text<'_>, flags: Flags, due: &DueLock) {
    let Ok(change) = Change::of_our_own(ctx, name, flags) else {
        return;
    };
    // A key of another type is none of our business any more.
    let _ = change.perform(|stored, effects| {
        if stored.place() == due.place {
            stored.has_no_place();
        }
        expire_holders(&mut stored.lock, change.moment(), effects);
        Ok(())
    });
}

/// During a grace once a second, and after a snapshot, tells replicas and the log how things stand: on
/// servers without `aux_save2` they have no other way to know.
fn sync(ctx: Ctx<'_>, now: Instant) {
    let due = state::with(|state| {
        let grace_left_ms = state.grace.left_ms(now);
        let schedule = &mut state.schedule;
        let due = schedule.sync_due || (grace_left_ms > 0 && schedule.next_sync <= now);
        if due {
            schedule.sync_due = false;
            schedule.next_sync = now.after_ms(SYNC_EVERY_MS);
        }
        let fence = state.fences.known();
        (due && (fence > 0 || grace_left_ms > 0)).then_some((fence, grace_left_ms))
    });
    if let Some((fence, grace_left_ms)) = due {
        ctx.replicate_numbers(c"DLOCK.SYNC", fence, grace_left_ms);
    }
}

/// Walks the keyspace as long as there are strays. Whether there is more to walk now.
fn find_strays(ctx: Ctx<'_>, now: Instant) -> bool {
    if !untracked::any() || state::with(|state| state.schedule.rest_until > now) {
        return false;
    }
    let slice_end = now.after_ms(SLICE_MS);
    let mut walk = state::with(|state| state.schedule.walk.take()).unwrap_or_else(Walk::begin);
    while ctx::now() < slice_end {
        let at_the_end = !walk.step(ctx);
        if at_the_end || !untracked::any() {
            state::with(|state| {
                state.schedule.rest_until = now.after_ms(if at_the_end { REST_MS } else { 0 })
            });
            return false;
        }
    }
    state::with(|state| state.schedule.walk = Some(walk));
    true
}

/// Frees what is known of databases that were emptied. Whether there is more.
fn free_emptied(now: Instant) -> bool {
    let slice_end = now.after_ms(SLICE_MS);
    while state::with(|state| state.registry.free_chunk()) {
        if ctx::now() >= slice_end {
            return true;
        }
    }
    false
}

/// Has the timer call for the next slice, unless it is on its way.
fn go_on(ctx: Ctx<'_>) {
    if !state::with(|state| std::mem::replace(&mut state.schedule.timer_is_set, true)) {
        // SAFETY: the context is valid; the timer carries no data.
        unsafe {
            required(raw::RedisModule_CreateTimer)(
                ctx.raw(),
                PAUSE_MS.cast_signed(),
                Some(timer),
                std::ptr::null_mut(),
            )
        };
    }
}

unsafe extern "C" fn timer(raw: *mut raw::RedisModuleCtx, _: *mut c_void) {
    state::with(|state| state.schedule.timer_is_set = false);
    // SAFETY: the server passes a context that is valid during the call.
    tick(unsafe { Ctx::new(raw) });
}
