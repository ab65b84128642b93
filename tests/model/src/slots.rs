//! A cluster slot that migrates between two nodes, and the fences of a lock in it. The lock is free whenever the slot
//! migrates, so no key carries its last fence along.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::search::World;
use dlock_core::cluster::fences::{Announcement, NodeId};
use dlock_core::cluster::slots::SlotSet;
use dlock_core::testing::Outside;
use dlock_core::{
    Acquire, Acquired, Effects, Inputs, Instant, Limit, Lock, LockNameRef, ServerState, WallClock,
};

/// A time in 2025, so that fences have as many digits as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };
/// The promotion gap of the fences is three to four ticks.
const TICK_MS: u64 = 10_000;
const SLOT: usize = 3300;
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
    server: ServerState,
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The core lends what it knows of the cluster only to those who change it.
        let mut server = self.server.clone();
        let (cluster, fences) = server.cluster();
        (fences, &cluster.fences).hash(state);
    }
}

impl Slots {
    /// Node 0 has the slot. Both nodes have granted other locks.
    pub fn new(setting: SlotSetting) -> Self {
        let node = Node {
            server: ServerState::default(),
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
        (0..2).for_each(|node| model.begin_term(node));
        model
    }

    fn unix_ms(&self) -> u64 {
        UNIX_MS + self.tick * TICK_MS + self.ms
    }

    fn clock(&self, node: usize) -> WallClock {
        let behind_ticks = if node == 1 { self.setting.behind_ticks } else { 0 };
        WallClock::from_unix_ms(self.unix_ms() - behind_ticks * TICK_MS)
    }

    fn now(&self) -> Instant {
        Instant::from_micros(0).after_ms(self.unix_ms())
    }

    fn outside(&self, node: usize) -> Outside {
        Outside {
            wall_clock: self.clock(node),
            random: 0,
        }
    }

    fn inputs<'a>(&self, outside: &'a Outside) -> Inputs<'a> {
        Inputs {
            slot: Some(SLOT).filter(|_| !self.setting.without_claims),
            ..outside.inputs(self.now())
        }
    }

    /// The first tick of a node after a start or a promotion.
    fn begin_term(&mut self, node: usize) {
        let outside = self.outside(node);
        let inputs = self.inputs(&outside);
        self.nodes[node].server.tick(&inputs);
    }

    /// The lock is free at once again: no key keeps the fence.
    fn grant(&mut self) -> Result<(), FenceFell> {
        let here = self.owner ^ usize::from(self.migrating);
        let outside = self.outside(here);
        let inputs = self.inputs(&outside);
        let (mut lock, mut effects) = (Lock::default(), Effects::default());
        let server = &mut self.nodes[here].server;
        let mut transition = server.begin(&inputs, NAME, &mut lock, &mut effects);
        let Ok(Acquired::Granted(granted)) = transition.acquire(&REQUEST, b"", true) else {
            panic!("a free lock was not granted");
        };
        self.announce(here, false);
        let last = std::mem::replace(&mut self.granted, granted.fence);
        if granted.fence > last {
            Ok(())
        } else {
            Err(FenceFell)
        }
    }

    fn announce(&mut self, node: usize, periodic: bool) {
        let now = self.now();
        let (cluster, fences) = self.nodes[node].server.cluster();
        let announcement = cluster.fences.announce(fences, periodic, now);
        let Some(announcement) = announcement.filter(|_| !self.setting.without_announcements) else {
            return;
        };
        if std::mem::take(&mut self.loses_next) {
            return;
        }
        let received =
            Announcement::decode(&announcement.encode()).expect("an announcement that was encoded");
        let (sender, other) = (node_id(node), 1 - node);
        let clock = self.clock(other);
        let (cluster, fences) = self.nodes[other].server.cluster();
        cluster.fences.receive(sender, &received, fences, clock, now);
    }

    /// Each node finds out which slots it owns that do not migrate.
    fn refresh_slots(&mut self) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let mut settled = SlotSet::EMPTY;
            if n == self.owner && !self.migrating {
                settled.insert(SLOT);
            }
            let (cluster, _) = node.server.cluster();
            cluster.fences.retain_claims(&settled);
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
                self.refresh_slots();
                (0..2).for_each(|node| self.announce(node, true));
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
                let server = &mut self.nodes[node].server;
                server.cluster().0.fences.retain_claims(&SlotSet::EMPTY);
                server.promote();
                self.begin_term(node);
                self.announce(node, false);
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
