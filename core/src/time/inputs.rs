//! What a decision depends on besides locks, queues and settings.

use super::Instant;
use crate::fence::WallClock;

/// What the shell reads before a decision, once for each command.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The monotonic clock.
    pub now: Instant,
    /// Whether this server decides at all.
    pub role: Role,
    /// The cluster slot of the lock; `None` outside of a cluster.
    pub slot: Option<usize>,
    /// Replicas or the append-only file consume the change, or no command of a client can stand for it. If not, it is not
    /// encoded.
    pub must_encode: bool,
    /// What is seldom needed.
    pub environment: &'a dyn Environment,
}

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides about locks.
    Primary,
    /// It follows a primary.
    Replica,
    /// It loads its files. Its role shows afterwards.
    Loading,
}

/// What is read only after a start or a promotion, for a cluster slot that is new here, and for a MINFENCE. Reading it
/// for each command would cost as much as a tenth of a grant.
pub trait Environment {
    /// The wall clock. Only fencing tokens depend on it.
    fn wall_clock(&self) -> WallClock;
    /// Random bits.
    fn random(&self) -> u64;
}
