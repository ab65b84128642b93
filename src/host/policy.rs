//! What the settings allow: those of the module, and the server's about eviction. A lock has no TTL, so only the
//! `allkeys-*` policies evict it.

use dlock_core::engine::{Process, held_back};

use crate::host::config;
use crate::redis::{Ctx, Events, log};

/// Hands the settings to the engine. At load, and whenever one changes. `E` is told of acknowledgements of replicas while
/// anything may depend on them.
pub fn refresh<E: Events>(ctx: &mut Ctx<'_>) {
    let evictable = may_evict(ctx) && !config::allow_eviction();
    let state = ctx.state();
    state.keep_fence = config::keep_fence();
    let was_evictable = state.server.policy().evictable;
    held_back::set_policy(ctx, config::policy(evictable));
    let holds_back = ctx.state().server.holds_back();
    ctx.watch_acknowledgements::<E>(holds_back);
    if evictable && !was_evictable {
        log::warning(
            "maxmemory-policy allkeys-* may evict a held lock, so that no new owner gets one (EVICTABLE): \
             use noeviction or volatile-*, or set dlock.allow-eviction yes",
        );
    }
}

fn may_evict(ctx: &mut Ctx<'_>) -> bool {
    let policy = ctx.info_text(c"memory", c"maxmemory_policy");
    ctx.info_number(c"memory", c"maxmemory") != Some(0)
        && policy.is_some_and(|policy| policy.starts_with("allkeys"))
}
