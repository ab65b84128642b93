//! What can happen in a model, and which rule is left out.

use dlock_core::{GraceLength, GraceSettings};

/// Time passes in ticks. The promotion gap of the fences is three to four of them.
pub const TICK_MS: u64 = 10_000;
/// Every lease is one or two ticks long.
pub const LONGEST_LEASE_TICKS: u64 = 2;

/// The setting of a model. In [`Setting::default`] nothing fails.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Server 0 is the primary, the others are its replicas.
    pub servers: usize,
    /// The model ends after this many ticks.
    pub ticks: u64,
    /// The maximum number of grants.
    pub grants: u8,
    /// Owners also request SHARED locks.
    pub shared: bool,
    /// `dlock.startup-grace-ms` and `dlock.failover-grace-ms`.
    pub startup_grace_ticks: u64,
    pub failover_grace_ticks: u64,
    pub old_primary: OldPrimary,
    pub aof: Aof,
    /// A replica may be disconnected, and lose everything after that.
    pub links_break: bool,
    /// The first primary has never granted a lock. Otherwise it has, and its replicas know the fence.
    pub fresh: bool,
    /// The maximum number of promotions.
    pub promotions: u8,
    /// The maximum number of primaries killed, besides those that die in a promotion.
    pub kills: u8,
    /// A primary may be killed before it has replicated its grace period.
    pub kill_before_checkpoint: bool,
    /// A server may become a replica of the newest primary.
    pub attach: bool,
    /// How often the wall clocks may be set back, by one tick each time.
    pub clock_jumps: u8,
    /// A server that was killed may start while there is another primary.
    pub starts_beside_another: bool,
    /// Owners also extend holds whose lease they know to have expired.
    pub late_extend: bool,
    pub checked: Checked,
    pub breach: Option<Breach>,
}

/// What becomes of a primary when a replica is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldPrimary {
    Dies,
    /// It is isolated and keeps serving.
    KeepsServing,
    /// `min-replicas-to-write` = all, and a failover takes longer than the permitted lag: it has stopped before.
    StopsWithoutReplicas,
}

/// Which guarantees are checked. In many models some are violated by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    All,
    /// Mutual exclusion, and that no known holder loses its hold in a grace period.
    Holds,
    /// Mutual exclusion only. A holder that loses its hold is safe, if not available.
    Overlaps,
    Fences,
}

/// What a server that was killed restarts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aof {
    /// No data.
    None,
    /// All data: `appendfsync always`.
    Always,
    /// An earlier state: `appendfsync everysec`.
    Everysec,
}

/// A rule that is broken on purpose, to show that it is needed and that the search detects the breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A promotion does not advance the fence counter.
    NoFenceGap,
    /// All servers have the same random bits.
    SameRandomBits,
    /// The remaining grace period is neither restored at a start nor applied by a replica.
    GraceNotRestored,
    /// A grace period does not extend the leases of known holders to its end.
    LeasesNotExtended,
    /// A grace period also extends leases that had expired before it began.
    ExpiredLeasesExtended,
    /// A known holder may re-enter in a grace period.
    ReentryInGrace,
    /// EXTEND needs no FENCE in a grace period.
    ExtendWithoutFence,
    /// A start advances the fence counter before its grace period, not at its end.
    FencesAdvancedBeforeGrace,
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
            aof: Aof::Always,
            links_break: false,
            fresh: false,
            promotions: 0,
            kills: 0,
            kill_before_checkpoint: false,
            attach: false,
            clock_jumps: 0,
            starts_beside_another: false,
            late_extend: false,
            checked: Checked::All,
            breach: None,
        }
    }
}

impl Setting {
    /// This setting, changed.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn graces(&self) -> GraceSettings {
        GraceSettings {
            startup: GraceLength::Ms(self.startup_grace_ticks * TICK_MS),
            failover: GraceLength::Ms(self.failover_grace_ticks * TICK_MS),
        }
    }
}
