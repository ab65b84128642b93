//! Whether the server may evict locks. A lock has no TTL, so only the `allkeys-*` policies can.

use crate::redis::{Ctx, log};
use crate::state::config;

/// Reads `maxmemory` and `maxmemory-policy`. At load, and whenever a setting changes.
pub fn refresh(ctx: &mut Ctx<'_>) {
    let evictable = is_evictable(ctx);
    let before = std::mem::replace(&mut ctx.state().evictable, evictable);
    if evictable && !before && !config::allow_eviction() {
        log::warning(
            "maxmemory-policy allkeys-* may evict a held lock, so that no new owner gets one (EVICTABLE): \
             use noeviction or volatile-*, or set dlock.allow-eviction yes",
        );
    }
}

fn is_evictable(ctx: &mut Ctx<'_>) -> bool {
    let policy = ctx.info_text(c"memory", c"maxmemory_policy");
    ctx.info_number(c"memory", c"maxmemory") != Some(0)
        && policy.is_some_and(|policy| policy.starts_with(b"allkeys"))
}
