//! What can happen to servers, and which of their rules is left out.

use super::SERVERS;

/// Counted from the same moment for all servers. Every fence in this model is below 256.
pub type Fence = u8;

/// By [`Setting::default`], no server restarts.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The fence counters and the clocks at first. One server has just started: its counter is its clock.
    pub counters: [Fence; SERVERS],
    pub clocks: [Fence; SERVERS],
    /// How far the clock of a server gets in its startup grace period, and how far MINFENCE may be ahead of it.
    pub grace: Fence,
    /// The leases of clients that are still acquiring may end.
    pub slow_clients: bool,
    /// The number of restarts in all, with data or without, and how many of the servers may restart.
    pub restarts: u8,
    pub restarting: usize,
    pub breach: Option<Breach>,
}

/// A rule that is broken on purpose, to show that it is needed and that the search detects the breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// EXTEND with MINFENCE raises the holder's fence, and not the counter.
    RaiseWithoutCounter,
    /// MINFENCE has no bound.
    UnboundedMinFence,
    /// A server that restarts without data has no grace period.
    NoGrace,
    /// Such a server takes its clock before the grace period, not at its end.
    FencesAdvancedBeforeGrace,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            counters: [10, 22, 12],
            clocks: [20, 22, 18],
            grace: 5,
            slow_clients: false,
            restarts: 0,
            restarting: SERVERS,
            breach: None,
        }
    }
}
