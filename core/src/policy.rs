//! What the settings of a server allow.

use super::grace::GraceSettings;

/// The settings that decisions depend on: see [`crate::Engine::set_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The length of a queue.
    pub max_waiters: usize,
    /// Whether a request that would wait forever is rejected.
    pub detect_deadlocks: bool,
    /// The server may evict locks: no new holders.
    pub evictable: bool,
    /// This server is one of several independent ones, which share locks: MINFENCE is allowed.
    pub is_quorum: bool,
    /// The grace periods after a start and a promotion.
    pub graces: GraceSettings,
}

impl Policy {
    /// Before the settings are known: nobody waits.
    pub const fn closed() -> Self {
        Self {
            max_waiters: 0,
            detect_deadlocks: true,
            evictable: false,
            is_quorum: false,
            graces: GraceSettings::NONE,
        }
    }
}
