//! What the settings of a server allow.

use crate::time::GraceSettings;

/// The settings that decisions depend on: see [`crate::ServerState::set_policy`].
/// By default nobody may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The length of a queue.
    pub max_waiters_per_lock: usize,
    /// The waiters of all locks, and answers that are not acknowledged.
    pub max_waiters: usize,
    /// The inboxes with names.
    pub max_inboxes: usize,
    /// The holders of a lock, whatever their limits. `None`: any number.
    pub max_holders: Option<usize>,
    /// Whether a request that would wait forever is rejected.
    pub detect_deadlocks: bool,
    /// The server may evict locks: no new holders.
    pub evictable: bool,
    /// This server is one of several independent ones, which share locks: MINFENCE is allowed.
    pub is_quorum: bool,
    /// Nobody is told of a hold, or of a longer lease, before so many replicas have it.
    pub min_sync_replicas: usize,
    /// For how long they may take.
    pub sync_timeout_ms: u64,
    /// The grace periods after a start and a promotion.
    pub graces: GraceSettings,
}
