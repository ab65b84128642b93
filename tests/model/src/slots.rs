//! A cluster slot that migrates between two nodes, and the fences of a lock in it. The lock is free whenever the slot
//! migrates, so no key carries its last fence along.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::search::World;
use dlock_core::cluster::fences::NodeId;
use dlock_core::cluster::nodes::LocalSlots;
use dlock_core::cluster::slots::{SlotSet, slot_of};
use dlock_core::engine::{self, Cause, announcements, decide, events, scheduler};
use dlock_core::memory::{Clocks, Memory};
use dlock_core::{Acquire, Acquired, Holds, Instant, Limit, Release};

/// A time in 2025, so that fences have as many digits as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
const KEY: &[u8] = b"lock";
/// The promotion gap of the fences is three to four ticks.
const TICK_MS: u64 = 10_000;
const REQUEST: Acquire<'_> = Acquire {
    owner: b"alice",
    lease_ms: TICK_MS,
    limit: Limit::MUTEX,
    wait: None,
    request_id: None,
    min_fence: None,
};

/// What can happen to the slot and its nodes.
#[derive(Clone, Copy, Debug, Hash)]
pub struct SlotSetting {
    /// The model ends after this many ticks.
    pub ticks: u64,
    /// The maximum number of grants.
    pub grants: u8,
    /// The maximum number of migrations.
    pub migrations: u8,
    /// A migration may be cancelled.
    pub cancels: bool,
    /// The maximum number of promotions of replicas.
    pub promotions: u8,
    /// By how much the clock of node 1 is behind.
    pub behind_ticks: u64,
    /// The maximum number of lost announcements.
    pub losses: u8,
    /// The rule left out: nodes announce nothing, so a claim advances to the clock only.
    pub without_announcements: bool,
    /// The rule left out: a grant without a claim.
    pub without_claims: bool,
}

/// A grant has no larger fence than the grant before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceFell;

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum SlotEvent {
    /// Ten seconds pass. The nodes refresh their slots and announce their counters.
    Tick,
    /// The lock is granted: by the owner of the slot, or by the node that imports it.
    Grant,
    /// The migration to the other node starts: free locks are granted there.
    Begin,
    /// The other node owns the slot.
    End,
    /// The slot stays where it is.
    Cancel,
    /// The replica of a node is promoted.
    Promotion(usize),
    /// The next announcement is lost.
    Loss,
}

/// A state: two nodes, one of which owns the slot.
#[derive(Clone, Hash)]
pub struct Slots {
    setting: SlotSetting,
    tick: u64,
    /// The milliseconds that have passed in this tick: one for each migration and promotion.
    ms: u64,
    nodes: [Node; 2],
    owner: usize,
    migrating: bool,
    loses_next: bool,
    granted: u64,
}

#[derive(Clone)]
struct Node {
    host: Memory,
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let server = &self.host.engine().server;
        (
            &server.fences,
            server.cluster.as_ref().map(|cluster| &cluster.fences),
        )
            .hash(state);
    }
}

impl Slots {
    /// Node 0 has the slot. Both nodes have granted other locks.
    pub fn new(setting: SlotSetting) -> Self {
        let node = Node {
            host: Memory::default(),
        };
        let mut model = Self {
            setting,
            tick: 0,
            ms: 0,
            nodes: [node.clone(), node],
            owner: 0,
            migrating: false,
            loses_next: false,
            granted: 0,
        };
        for node in 0..2 {
            // Without a claim, the nodes know nothing of each other.
            model.nodes[node].host.flags.is_cluster = !setting.without_claims;
            model.tick(node);
        }
        model
    }

    fn unix_ms(&self) -> u64 {
        UNIX_MS + self.tick * TICK_MS + self.ms
    }

    /// The host of a node, at this time.
    fn host(&mut self, node: usize) -> &mut Memory {
        let unix_ms = self.unix_ms();
        let behind_ticks = if node == 1 { self.setting.behind_ticks } else { 0 };
        let host = &mut self.nodes[node].host;
        host.clocks = Clocks {
            now: Instant::from_micros(0).after_ms(unix_ms),
            unix_ms: unix_ms - behind_ticks * TICK_MS,
            random: 0,
        };
        host
    }

    /// What the cron does: it finds out which slots the node owns that do not migrate, and announces its counter.
    fn tick(&mut self, node: usize) {
        let mut settled = SlotSet::EMPTY;
        if node == self.owner && !self.migrating {
            settled.insert(slot_of(KEY));
        }
        let host = self.host(node);
        host.slots = Some(LocalSlots {
            settled,
            ..LocalSlots::default()
        });
        scheduler::run_jobs(host);
        self.deliver(node);
    }

    /// The lock is free at once again: no key keeps the fence.
    fn grant(&mut self) -> Result<(), FenceFell> {
        let here = self.owner ^ usize::from(self.migrating);
        let host = self.host(here);
        let flags = host.flags;
        let Ok(Acquired::Granted(granted)) = engine::acquire(host, KEY, flags, b"", &REQUEST) else {
            panic!("a free lock was not granted");
        };
        let release = Release {
            owner: REQUEST.owner,
            fence: None,
            holds: Holds::All,
        };
        let released = decide(host, KEY, flags, Cause::Client, |it| it.release(&release));
        assert_eq!(released.ok(), Some(0));
        self.deliver(here);
        let last = std::mem::replace(&mut self.granted, granted.fence);
        if granted.fence > last {
            Ok(())
        } else {
            Err(FenceFell)
        }
    }

    /// The other node gets what this one has sent. Nobody else is there.
    fn deliver(&mut self, node: usize) {
        self.host(node).forget_output();
        for message in std::mem::take(&mut self.host(node).broadcasts) {
            if !self.setting.without_announcements && !std::mem::take(&mut self.loses_next) {
                announcements::receive(self.host(1 - node), node_id(node), &message);
            }
        }
    }
}

fn node_id(node: usize) -> NodeId {
    [b'0' + node as u8; 40]
}

impl World for Slots {
    type Event = SlotEvent;
    type Violation = FenceFell;

    fn events(&self) -> Vec<SlotEvent> {
        let setting = &self.setting;
        let mut events = Vec::new();
        if setting.grants > 0 {
            events.push(SlotEvent::Grant);
        }
        if self.migrating {
            events.push(SlotEvent::End);
            if setting.cancels {
                events.push(SlotEvent::Cancel);
            }
        } else if setting.migrations > 0 {
            events.push(SlotEvent::Begin);
        }
        if setting.promotions > 0 {
            events.extend((0..2).map(SlotEvent::Promotion));
        }
        if setting.losses > 0 && !self.loses_next {
            events.push(SlotEvent::Loss);
        }
        if self.tick < setting.ticks {
            events.push(SlotEvent::Tick);
        }
        events
    }

    fn happen(&mut self, event: SlotEvent) -> Result<(), FenceFell> {
        match event {
            SlotEvent::Tick => {
                self.tick += 1;
                (0..2).for_each(|node| self.tick(node));
            }
            SlotEvent::Grant => {
                self.setting.grants -= 1;
                return self.grant();
            }
            SlotEvent::Begin => {
                self.setting.migrations -= 1;
                self.ms += 1;
                self.migrating = true;
            }
            SlotEvent::End => {
                self.owner = 1 - self.owner;
                self.migrating = false;
            }
            SlotEvent::Cancel => self.migrating = false,
            SlotEvent::Promotion(node) => {
                self.setting.promotions -= 1;
                self.ms += 1;
                events::role_changed(self.host(node), true);
                self.tick(node);
            }
            SlotEvent::Loss => {
                self.setting.losses -= 1;
                self.loses_next = true;
            }
        }
        Ok(())
    }
}

impl fmt::Display for SlotEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "-- tick --"),
            Self::Grant => write!(f, "grant"),
            Self::Begin => write!(f, "migration starts"),
            Self::End => write!(f, "migration ends"),
            Self::Cancel => write!(f, "migration is cancelled"),
            Self::Promotion(node) => write!(f, "replica of {node} is promoted"),
            Self::Loss => write!(f, "next announcement is lost"),
        }
    }
}
