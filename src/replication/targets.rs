//! Whether anybody hears what is replicated: replicas, or a log.
//!
//! Putting a change into words takes a fifth of the time of a grant. The server throws the words away when
//! nobody listens; this module knows beforehand, and does not form them.
//!
//! A log is seen in the flags of each command. Replicas are looked for once a second and whenever the server
//! forks, and that is enough: a replica that is new begins with a snapshot, which the server forks to make, so
//! that whoever it finds at the fork is owed what comes after, and nobody is owed what came before. Only a
//! server that was a replica, or that loaded the place where it stopped, has a backlog for others to go on from
//! without a snapshot: until the first look, and after each change of role, somebody listens.

use crate::module::state;
use crate::redis::ctx::{Ctx, Flags};

/// What is known of who listens.
pub struct Audience {
    replicas: bool,
}

impl Audience {
    /// Before the first look there may be any.
    pub const fn unknown() -> Self {
        Self { replicas: true }
    }

    /// After a change of role there may be replicas that need no snapshot.
    pub fn may_have_changed(&mut self) {
        self.replicas = true;
    }

    pub fn listens(&self, flags: Flags) -> bool {
        self.replicas || flags.has_log()
    }
}

/// Looks for replicas, and for a backlog from which one could go on. A server that does not say has some.
pub fn look(ctx: Ctx<'_>) {
    let is_none = |field| ctx.info_number(c"replication", field) == Some(0);
    let replicas = !(is_none(c"connected_slaves") && is_none(c"repl_backlog_active"));
    state::with(|state| state.audience = Audience { replicas });
}
