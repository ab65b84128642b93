//! Skips encoding a replication payload that the server would discard.
//!
//! Encoding is about 20 % of the cost of a grant, and the server discards it when there is no AOF, no replica and no
//! backlog. The flags of each command show an AOF. Replicas and the backlog are polled once a second, and whenever a
//! snapshot begins: at a fork, and when SAVE, a shutdown or another thread writes one without a fork. That is sufficient:
//!
//! - Whoever consumes the stream begins with a snapshot and continues at its offset. The poll at the snapshot finds the
//!   backlog that this takes, and everything after it is encoded until the backlog is gone.
//! - A snapshot without a backlog holds no offset. The backlog that is made later has a new replication id, so nobody
//!   can continue from such a snapshot.
//! - Only a server that was a replica, or that loaded the offset at which it stopped, has a backlog from which others
//!   continue without a new snapshot: until the first poll, and after each change of role, replicas are assumed.
//! - A slot that Valkey 9 migrates atomically goes to the other node with a snapshot of its own and all changes after it,
//!   without a backlog: everything is encoded while a migration goes on.

/// What is known of replicas. Before the first poll there may be some.
#[derive(Clone, Default)]
pub struct ReplicationTargets {
    /// What the server said last. After a change of role there may be replicas that need no snapshot.
    pub has_no_replicas: bool,
    /// How many slots are migrating to other nodes.
    pub exports: u32,
}
