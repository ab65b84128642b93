//! Finds untracked locks, so that their leases expire under their new names.

use std::ffi::c_int;

use dlock_core::Instant;

use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, Gil, KeyspaceScan, RStr, clock, log};
use crate::state::untracked;

/// The work of one slice: clients wait no longer than that.
const SLICE_MS: u64 = 1;
/// The pause after a scan that did not find all, when some may have moved to where it had been.
const PAUSE_MS: u64 = 1_000;
/// The pause when none has moved: they are being freed.
const BACKOFF_MS: u64 = 10_000;
const LOG_INTERVAL_MS: u64 = 60_000;

/// Scans the keyspace as long as there are untracked locks. Returns whether there is more to scan now.
pub fn find_untracked(ctx: &mut Ctx<'_>, now: Instant) -> bool {
    let schedule = &mut ctx.state().schedule;
    let running = schedule.scan.take();
    if !untracked::any() {
        return false;
    }
    let (ended, moves) = schedule.last_scan;
    let pause_ms = if untracked::moves() == moves {
        BACKOFF_MS
    } else {
        PAUSE_MS
    };
    if running.is_none() && ended.after_ms(pause_ms) > now {
        return false;
    }
    let slice_end = now.after_ms(SLICE_MS);
    if running.is_none() && schedule.next_scan_log <= now {
        schedule.next_scan_log = now.after_ms(LOG_INTERVAL_MS);
        log::notice("scanning the keyspace for locks that RENAME or MOVE put under another name");
    }
    let (mut scan, moves) = running.unwrap_or_else(|| (KeyspaceScan::begin(), untracked::moves()));
    while clock::now() < slice_end {
        if !scan.visit_some(ctx, visit) {
            ctx.state().schedule.last_scan = (now, moves);
            return false;
        }
        if !untracked::any() {
            return false;
        }
    }
    ctx.state().schedule.scan = Some((scan, moves));
    true
}

fn visit(gil: &mut Gil<'_>, db: c_int, name: RStr<'_>, value: &LockValue) {
    if value.is_untracked() {
        let state = gil.state();
        let cx = state.lease_context();
        value.schedule_expiry(state, db, name.bytes(), &cx);
    }
}
