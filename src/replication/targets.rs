//! Skips encoding a replication payload that the server would discard.
//!
//! Encoding is about 20 % of the cost of a grant, and the server discards it when there is no AOF, no replica and no
//! backlog. The flags of each command show an AOF. Replicas and the backlog are polled once a second, and whenever a
//! snapshot begins: at a fork, and when SAVE or a shutdown writes one without a fork. That is sufficient:
//!
//! - Whoever consumes the stream begins with a snapshot and continues at its offset. The poll at the snapshot finds the
//!   backlog that this takes, and everything after it is encoded until the backlog is gone.
//! - A snapshot without a backlog holds no offset. The backlog that is made later has a new replication id, so nobody
//!   can continue from such a snapshot.
//! - Only a server that was a replica, or that loaded the offset at which it stopped, has a backlog from which others
//!   continue without a new snapshot: until the first poll, and after each change of role, replicas are assumed.
//!
//! Valkey's forkless snapshots stay off as long as a module does not declare `HANDLE_FORKLESS`. Declaring it would need
//! another event in place of the fork.

use std::ffi::CStr;

use crate::redis::{Ctx, Flags};

/// What is known of replicas.
pub struct ReplicationTargets {
    may_have_replicas: bool,
}

impl ReplicationTargets {
    /// Before the first poll there may be some.
    pub const fn unknown() -> Self {
        Self {
            may_have_replicas: true,
        }
    }

    /// After a change of role there may be replicas that need no snapshot.
    pub fn mark_unknown(&mut self) {
        *self = Self::unknown();
    }

    /// Asks the server for replicas, and for a backlog from which one could continue. One that does not say has some.
    pub fn read(ctx: &mut Ctx<'_>) -> Self {
        let mut is_zero = |field: &CStr| ctx.info_number(c"replication", field) == Some(0);
        Self {
            may_have_replicas: !(is_zero(c"connected_slaves") && is_zero(c"repl_backlog_active")),
        }
    }

    pub fn should_propagate(&self, flags: Flags) -> bool {
        self.may_have_replicas || flags.has_aof()
    }
}
