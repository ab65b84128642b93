//! `INFO dlock`.

use dlock_core::engine::Process;

use crate::host::config;
use crate::redis::{Gil, InfoSection};

/// The fields, each shown as `dlock_<name>`.
pub struct DlockInfo;

impl InfoSection for DlockInfo {
    fn fields(gil: &mut Gil<'_>) -> Vec<(&'static str, String)> {
        let now = gil.now();
        let state = gil.state();
        let counters = &state.counters;
        let errors = &counters.errors;
        let longest_wait_ms = state
            .server
            .wait_table
            .longest_since()
            .map_or(0, |since| since.ms_until(now));
        let numbers = [
            ("locks", state.expiry.len()),
            ("acquired", counters.acquired),
            ("reentered", counters.reentered),
            ("not_granted", counters.not_granted),
            ("released", counters.released),
            ("extended", counters.extended),
            ("guarded", counters.guarded),
            ("guards_refused", counters.guards_refused),
            ("expired", counters.expired),
            ("expired_contended", counters.expired_contended),
            ("longest_hold_ms", state.longest_hold.ms(now)),
            ("held_ms", counters.held_ms.sum_ms()),
            ("waiters", state.server.wait_table.waiters() as u64),
            ("waiters_queued", state.server.inboxes.waiters() as u64),
            ("inboxes", state.server.inboxes.len() as u64),
            ("inbox_answers", state.server.inboxes.answers() as u64),
            ("inboxes_ended", state.server.inboxes.ended_total()),
            ("contended_locks", state.server.wait_table.locks() as u64),
            ("longest_wait_ms", longest_wait_ms),
            ("grants_from_queue", counters.grants_from_queue),
            ("waited_ms", counters.waited_ms.sum_ms()),
            ("wait_timeouts", counters.wait_timeouts),
            ("grants_rolled_back", counters.grants_rolled_back),
            ("limit_mismatches", counters.limit_mismatches),
            (
                "deadlock_searches_abandoned",
                counters.deadlock_searches_abandoned,
            ),
            ("internal_errors", counters.internal_errors),
            ("errors_late_releases", counters.late_releases),
            ("errors_err", errors.err),
            ("errors_wrongtype", errors.wrongtype),
            ("errors_notheld", errors.notheld),
            ("errors_notowner", errors.notowner),
            ("errors_stale", errors.stale),
            ("errors_grace", errors.grace),
            ("errors_evictable", errors.evictable),
            ("errors_deadlock", errors.deadlock),
            ("errors_queuefull", errors.queuefull),
            ("errors_noinbox", errors.noinbox),
            ("errors_busyinbox", errors.busyinbox),
            ("sync_replicas", state.server.replicas.online as u64),
            ("sync_waiting", state.held_back.count() as u64),
            ("sync_timeouts", counters.sync_timeouts),
            ("sync_ms", counters.held_back_ms.sum_ms()),
            ("quorum", u64::from(state.server.policy().is_quorum)),
            ("fences_raised", counters.fences_raised),
            ("fence_known", state.server.fences.known()),
            ("grace_left_ms", state.server.grace.left_ms(now)),
            ("max_lease_ms", config::max_lease_ms()),
            ("evictable", u64::from(state.server.policy().evictable)),
        ];
        let numbers = numbers
            .into_iter()
            .map(|(name, number)| (name, number.to_string()));
        let buckets = [
            ("held_ms_buckets", counters.held_ms.buckets()),
            ("waited_ms_buckets", counters.waited_ms.buckets()),
            ("sync_ms_buckets", counters.held_back_ms.buckets()),
        ];
        numbers.chain(buckets).collect()
    }
}
