//! What the server's files hold of this module, so that it can be removed: see `dlock.keep-fence`.

use crate::redis::{Ctx, clock};
use crate::state::config;
use crate::state::module_state::State;
use crate::state::untracked;

/// What is known of the files.
pub struct Footprint {
    /// Since when nothing has been written, in seconds since 1970; `None` while something is, or would be.
    clean_since: Option<u64>,
    /// The append-only file holds nothing.
    aof_is_clean: bool,
    /// The rewrite that is running began when there was nothing to write.
    rewrite_is_clean: bool,
}

impl Footprint {
    /// Before anything is loaded.
    pub const fn new() -> Self {
        Self {
            clean_since: None,
            aof_is_clean: true,
            rewrite_is_clean: false,
        }
    }

    /// Something of the module was loaded, or is about to be logged.
    pub fn touch(&mut self) {
        *self = Self {
            clean_since: None,
            aof_is_clean: false,
            rewrite_is_clean: false,
        };
    }

    pub fn clean_since(&self) -> u64 {
        self.clean_since.unwrap_or(0)
    }

    pub fn aof_is_clean(&self) -> bool {
        self.aof_is_clean
    }
}

impl State {
    /// Whether the module writes more than locks into RDB and log. A lock needs the module anyway.
    pub fn keeps_fence(&self) -> bool {
        let has_locks = !self.expiry.is_empty() || untracked::any() || !self.restored.is_empty();
        config::keep_fence() || has_locks || self.engine.grace.left_ms(clock::now()) > 0
    }
}

/// The server begins to rewrite its log.
pub fn rewrite_began(state: &mut State) {
    state.footprint.rewrite_is_clean = !state.keeps_fence();
}

/// Once a second.
pub fn refresh(ctx: &mut Ctx<'_>) {
    let now = clock::unix_ms() / 1_000;
    let state = ctx.state();
    let keeps = state.keeps_fence();
    let footprint = &mut state.footprint;
    // The setting is `yes` again: the log has to catch up.
    state.engine.checkpoint_due |= keeps && footprint.clean_since.is_some();
    footprint.clean_since = (!keeps).then(|| footprint.clean_since.unwrap_or(now));
    if footprint.rewrite_is_clean && ctx.info_number(c"persistence", c"aof_rewrite_in_progress") == Some(0) {
        let status = ctx.info_text(c"persistence", c"aof_last_bgrewrite_status");
        let footprint = &mut ctx.state().footprint;
        footprint.rewrite_is_clean = false;
        footprint.aof_is_clean |= status.is_some_and(|status| status == b"ok");
    }
}
