//! What can happen in a world, and which rule is left out.

use dlock_core::{GraceLength, GraceSettings};

/// Time passes in ticks. A leap of the fences is worth three to four of them.
pub const TICK_MS: u64 = 10_000;
/// All leases are of one tick or of two.
pub const LONGEST_LEASE_TICKS: u64 = 2;

/// A world's setting. [`Setting::default`] is a world in which nothing fails.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Server 0 is the primary, the others are its replicas.
    pub servers: usize,
    /// So long the world lasts.
    pub ticks: u64,
    /// So many requests are granted in all.
    pub grants: u8,
    /// Owners ask for a SHARED lock too.
    pub shared: bool,
    /// `dlock.startup-grace-ms` and `dlock.failover-grace-ms`.
    pub startup_grace_ticks: u64,
    pub failover_grace_ticks: u64,
    pub old_primary: OldPrimary,
    pub log: Log,
    /// A replica may lose what comes after a moment.
    pub links_break: bool,
    /// The first primary has never granted anything. Else it has, and its replicas have heard of it.
    pub fresh: bool,
    /// So many replicas become primaries.
    pub promotions: u8,
    /// So many primaries are killed, beside those that die when another is promoted.
    pub kills: u8,
    /// A primary may be killed before it has told of its grace.
    pub kill_at_once: bool,
    /// A server may become a replica of the newest primary.
    pub attach: bool,
    /// So often wall clocks are set back, by a tick each.
    pub clock_jumps: u8,
    /// A server that was killed starts again, in spite of another that serves.
    pub starts_beside_another: bool,
    /// Owners extend holds that they know to have ended.
    pub late_extend: bool,
    pub watch: Watch,
    pub breach: Option<Breach>,
}

/// What becomes of a primary when a replica is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldPrimary {
    /// It is dead.
    Dies,
    /// It knows nothing of it.
    GoesOn,
    /// `min-replicas-to-write` = all, and a failover takes longer than the lag allowed: it has stopped before.
    StopsWithoutReplicas,
}

/// Which promises are looked at. In many worlds some are broken at once, by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    All,
    /// Who is sure to hold the lock.
    Holds,
    /// The same, but for holders that lose what they had: they are safe, if not served.
    Overlaps,
    Fences,
}

/// What a server that was killed starts again with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Nothing.
    None,
    /// All: `appendfsync always`.
    Always,
    /// What there was at some moment before: `appendfsync everysec`.
    Behind,
}

/// A rule that is broken on purpose, to see that it is needed, and that the search looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A promotion does not raise the counter of fences.
    NoRaise,
    /// All servers roll the same dice.
    SameDice,
    /// What is left of a grace is neither read at a start nor heard by a replica.
    GraceForgotten,
    /// The leases of known holders do not run to the end of a grace.
    NotProlonged,
    /// A grace prolongs leases too that had ended before it began.
    EndedProlonged,
    /// A known holder may acquire again in a grace.
    ReentryInGrace,
    /// EXTEND needs no FENCE in a grace.
    ExtendWithoutFence,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            servers: 2,
            ticks: 4,
            grants: 3,
            shared: false,
            startup_grace_ticks: 0,
            failover_grace_ticks: 0,
            old_primary: OldPrimary::Dies,
            log: Log::Always,
            links_break: false,
            fresh: false,
            promotions: 0,
            kills: 0,
            kill_at_once: false,
            attach: false,
            clock_jumps: 0,
            starts_beside_another: false,
            late_extend: false,
            watch: Watch::All,
            breach: None,
        }
    }
}

impl Setting {
    pub fn graces(&self) -> GraceSettings {
        GraceSettings {
            startup: GraceLength::Ms(self.startup_grace_ticks * TICK_MS),
            failover: GraceLength::Ms(self.failover_grace_ticks * TICK_MS),
        }
    }
}
