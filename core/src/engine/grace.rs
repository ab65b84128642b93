//! The exit of a grace period: who lowers its setting ends it sooner.

use super::host::{Host, Level};
use super::{scheduler, wait_timer};
use crate::time::{GraceKind, GraceSettings};

const SETTINGS: [(GraceKind, &str); 2] = [
    (GraceKind::Startup, "dlock.startup-grace-ms"),
    (GraceKind::Failover, "dlock.failover-grace-ms"),
];

/// Some of the server's settings were set. `before`: those of the grace periods until then. On a replica the grace period
/// is the primary's.
pub fn shorten<H: Host>(host: &mut H, is_set: impl Fn(&str) -> bool, before: GraceSettings) {
    if !host.flags().is_active_primary() {
        return;
    }
    for (kind, name) in SETTINGS.into_iter().filter(|(_, name)| is_set(name)) {
        let now = host.now();
        let state = host.state();
        let end = state.server.grace.end();
        let Some(before_ms) = state.server.shorten_grace(kind, before.of(kind), now) else {
            continue;
        };
        // Leases that the grace period had stretched may be over.
        state.expiry.expire_early(end);
        let left_ms = state.server.grace.left_ms(now);
        let warning = format!(
            "{name} was lowered: the grace period ends in {left_ms} ms instead of {before_ms} ms. Risk: an owner whose \
             hold this server may have lost can still be at work, and another one may be granted its lock; \
             only fencing tokens tell them apart"
        );
        host.log(Level::Warning, &warning);
        scheduler::request_checkpoint(host);
        wait_timer::arm(host);
    }
}
