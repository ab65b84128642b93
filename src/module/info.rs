//! `INFO dlock`.

use std::ffi::{CString, c_int};

use redis_module::raw;

use crate::expiry::untracked;
use crate::module::config;
use crate::module::state::{self, State};
use crate::redis::api::required;
use crate::redis::ctx;
use dlock_core::Instant;

pub unsafe extern "C" fn write(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        // The thread that crashed may have had the state in hand, and need not be the server's own.
        return;
    }
    let now = ctx::now();
    let fields = state::with(|state| fields(state, now));
    // SAFETY: the server passes a context that is valid during the call; strings are C strings.
    unsafe {
        // Without a name the section is that of the module itself.
        if required(raw::RedisModule_InfoAddSection)(info, std::ptr::null()) != raw::REDISMODULE_OK as c_int {
            // INFO was asked for another section.
            return;
        }
        for (name, value) in fields {
            let name = CString::new(name).unwrap_or_default();
            required(raw::RedisModule_InfoAddFieldULongLong)(info, name.as_ptr(), value);
        }
    }
}

/// The fields, each shown as `dlock_<name>`.
fn fields(state: &State, now: Instant) -> Vec<(&'static str, u64)> {
    let counters = &state.counters;
    let errors = &counters.errors;
    vec![
        ("locks", state.registry.len()),
        ("untracked_locks", u64::from(untracked::any())),
        ("acquired", counters.acquired),
        ("reentered", counters.reentered),
        ("not_granted", counters.not_granted),
        ("released", counters.released),
        ("extended", counters.extended),
        ("expired", counters.expired),
        ("expired_contended", counters.expired_contended),
        ("held_ms_p50", counters.holds.percentile(50.0)),
        ("held_ms_p99", counters.holds.percentile(99.0)),
        ("held_ms_max", counters.holds.percentile(100.0)),
        ("waiters", state.waiting.waiters() as u64),
        ("contended_locks", state.waiting.locks() as u64),
        (
            "longest_wait_ms",
            state
                .waiting
                .longest_since()
                .map_or(0, |since| since.ms_until(now)),
        ),
        ("grants_from_queue", counters.grants_from_queue),
        ("waited_ms", counters.waited_ms),
        ("waited_ms_p50", counters.waits.percentile(50.0)),
        ("waited_ms_p99", counters.waits.percentile(99.0)),
        ("waited_ms_max", counters.waits.percentile(100.0)),
        ("wait_timeouts", counters.wait_timeouts),
        ("grants_rolled_back", counters.grants_rolled_back),
        ("errors_late_releases", counters.late_releases),
        ("errors_err", errors.err),
        ("errors_wrongtype", errors.wrongtype),
        ("errors_notheld", errors.notheld),
        ("errors_notowner", errors.notowner),
        ("errors_stale", errors.stale),
        ("errors_grace", errors.grace_error),
        ("errors_evictable", errors.evictable),
        ("errors_deadlock", errors.deadlock),
        ("errors_queuefull", errors.queuefull),
        ("fence_known", state.fences.known()),
        ("grace_left_ms", state.grace.left_ms(now)),
        (
            "evictable",
            u64::from(state.evictable && !config::allow_eviction()),
        ),
    ]
}
