//! The exit of a grace period: who lowers its setting ends it sooner.

use std::ffi::CStr;

use dlock_core::{GraceKind, GraceSettings};

use crate::background::scheduler;
use crate::redis::{Ctx, log};
use crate::state::clock;
use crate::state::module_state::HasState;
use crate::state::wait_timer;

const SETTINGS: [(GraceKind, &CStr); 2] = [
    (GraceKind::Startup, c"dlock.startup-grace-ms"),
    (GraceKind::Failover, c"dlock.failover-grace-ms"),
];

/// Some of the server's settings were set. `before`: those of the grace periods until then. On a replica the grace period
/// is the primary's.
pub fn shorten(ctx: &mut Ctx<'_>, names: &[&CStr], before: GraceSettings) {
    if !ctx.flags().is_active_primary() {
        return;
    }
    for (kind, name) in SETTINGS.iter().filter(|(_, name)| names.contains(name)) {
        let now = clock::now();
        let state = ctx.state();
        let end = state.server.grace.end();
        let Some(before_ms) = state.server.shorten_grace(*kind, before.of(*kind), now) else {
            continue;
        };
        // Leases that the grace period had stretched may be over.
        state.expiry.expire_early(end);
        let left_ms = state.server.grace.left_ms(now);
        log::warning(&format!(
            "{} was lowered: the grace period ends in {left_ms} ms instead of {before_ms} ms. Risk: an owner whose \
             hold this server may have lost can still be at work, and another one may be granted its lock; \
             only fencing tokens tell them apart",
            name.to_string_lossy()
        ));
        scheduler::request_checkpoint(ctx);
        wait_timer::arm(ctx);
    }
}
