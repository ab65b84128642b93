//! What can happen in a world, and which rule is left out.

use super::SERVERS;

/// Counted from the same moment for all servers. Every fence in this model is below 256.
pub type Fence = u8;

/// [`Setting::default`] is a world of two clients, in which no server restarts.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Each client makes one acquisition.
    pub clients: usize,
    /// The fence counters and the clocks at first. One server has just started: its counter is its clock.
    pub counters: [Fence; SERVERS],
    pub clocks: [Fence; SERVERS],
    /// By server, how often it may grant a client the lock: more than once if a hold ends and a late copy of the request
    /// arrives.
    pub grants: [u8; SERVERS],
    /// Replies may get lost, of ACQUIRE and of EXTEND.
    pub lost_replies: bool,
    /// The leases of clients that are still acquiring may end.
    pub slow_clients: bool,
    /// ACQUIRE carries the fence of the first server, or not.
    pub min_fence: bool,
    /// A client may pass the doorway of any server, whose fence its ACQUIREs then carry.
    pub doorway: bool,
    /// A request asks for a fence that no server has issued.
    pub absurd_min_fence: Option<Fence>,
    /// The number of restarts in all, with data or without, and how many of the servers may restart.
    pub restarts: u8,
    pub restarting: usize,
    pub breach: Option<Breach>,
}

/// A rule that is broken on purpose, to show that it is needed and that the search detects the breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The fence is the largest of a majority, and no hold is raised to it.
    NoRaise,
    /// The guard is handed out when the raises are sent, not when they are confirmed.
    RaiseNotAwaited,
    /// A majority that holds under the fence or a larger one is enough.
    LargerFenceCounts,
    /// EXTEND with MINFENCE raises the holder's fence, and not the counter.
    RaiseWithoutCounter,
    /// EXTEND with MINFENCE does not check the hold.
    RaiseWithoutHold,
    /// MINFENCE has no bound.
    UnboundedMinFence,
    /// A server that restarts without data has no grace period.
    NoGrace,
    /// Such a server takes its clock before the grace period, not at its end.
    FencesAdvancedBeforeGrace,
    /// A guard is used after a lease of its majority has ended.
    GuardOutlivesLease,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            clients: 2,
            counters: [10, 22, 12],
            clocks: [20, 22, 18],
            grants: [1; SERVERS],
            lost_replies: true,
            slow_clients: false,
            min_fence: true,
            doorway: false,
            absurd_min_fence: None,
            restarts: 0,
            restarting: SERVERS,
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
}
