//! Finds untracked locks, so that their leases expire under their new names.

use std::ffi::c_int;

use dlock_core::Instant;

use crate::expiry::untracked;
use crate::module::data_type::LockValue;
use crate::redis::{Ctx, Gil, KeyspaceScan, RStr, clock, log};

/// The work of one slice: clients wait no longer than that.
const SLICE_MS: u64 = 1;
/// The pause after a scan that did not find all: the others are being freed.
const BACKOFF_MS: u64 = 10_000;
const LOG_INTERVAL_MS: u64 = 60_000;

/// Scans the keyspace as long as there are untracked locks. Whether there is more to scan now.
pub fn find_untracked(ctx: &mut Ctx<'_>, now: Instant) -> bool {
    let schedule = &mut ctx.state().schedule;
    if !untracked::any() || schedule.scan_not_before > now {
        return false;
    }
    let slice_end = now.after_ms(SLICE_MS);
    let scan = schedule.scan.take();
    if scan.is_none() && schedule.next_scan_log <= now {
        schedule.next_scan_log = now.after_ms(LOG_INTERVAL_MS);
        log::notice("scanning the keyspace for locks that RENAME or MOVE put under another name");
    }
    let mut scan = scan.unwrap_or_else(KeyspaceScan::begin);
    while clock::now() < slice_end {
        let is_at_end = !scan.visit_some(ctx, visit);
        if is_at_end || !untracked::any() {
            let backoff_ms = if is_at_end { BACKOFF_MS } else { 0 };
            ctx.state().schedule.scan_not_before = now.after_ms(backoff_ms);
            return false;
        }
    }
    ctx.state().schedule.scan = Some(scan);
    true
}

fn visit(gil: &mut Gil<'_>, db: c_int, name: RStr<'_>, value: &LockValue) {
    if value.is_untracked() {
        let state = gil.state();
        let cx = state.lease_context();
        value.schedule_expiry(state, db, name.bytes(), &cx);
    }
}
