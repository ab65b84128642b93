//! A cluster slot that moves between two nodes, as far as the fences of a lock in it go that is free
//! whenever the slot moves: there is no key then that could bring its last fence along.

use std::fmt;

use crate::search::World;
use dlock_core::{AdvanceReason, Fences, WallClock};

/// 2025, so that fences are as long as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
/// A leap of the fences is worth three to four ticks.
const TICK_MS: u64 = 10_000;

/// What can happen to the slot and its nodes.
#[derive(Clone, Copy, Debug, Hash)]
pub struct SlotSetting {
    /// So long the world lasts.
    pub ticks: u64,
    /// So many grants there are in all.
    pub grants: u8,
    /// So often the slot moves.
    pub moves: u8,
    /// So often the replica of a node takes over.
    pub promotions: u8,
    /// By how much the clock of node 1 is behind.
    pub behind_ticks: u64,
    /// The slot may come back before its old node has looked which slots are there.
    pub back_at_once: bool,
    /// The rule left out: the first grant in a slot that came here does not raise the counter.
    pub without_raise: bool,
}

/// A grant has a fence that is not above that of the grant before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceFell;

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub enum SlotEvent {
    /// Ten seconds pass.
    Tick,
    /// The node that has the slot grants the lock.
    Grant,
    /// The slot moves to the other node.
    Move,
    /// A node looks which slots are there.
    Look(usize),
    /// The replica of a node takes over.
    Promotion(usize),
}

/// The world: two nodes, and which of them has the slot.
#[derive(Clone, Hash)]
pub struct Slots {
    setting: SlotSetting,
    tick: u64,
    /// So many milliseconds have passed in this tick: one a move, one a promotion.
    ms: u64,
    nodes: [Node; 2],
    here: usize,
    granted: u64,
}

#[derive(Clone, Hash)]
struct Node {
    fences: Fences,
    /// The counter has been raised since the slot came here, as far as this node has looked.
    raised: bool,
}

impl Slots {
    /// Node 0 has the slot. Both nodes have granted other locks.
    pub fn new(setting: SlotSetting) -> Self {
        let node = Node {
            fences: Fences::starting(),
            raised: false,
        };
        let mut world = Self {
            setting,
            tick: 0,
            ms: 0,
            nodes: [node.clone(), node],
            here: 0,
            granted: 0,
        };
        (0..2).for_each(|node| world.raise(node));
        world
    }

    fn raise(&mut self, node: usize) {
        let behind_ticks = if node == 1 { self.setting.behind_ticks } else { 0 };
        let unix_ms = UNIX_MS + self.tick * TICK_MS + self.ms - behind_ticks * TICK_MS;
        let fences = &mut self.nodes[node].fences;
        if fences.is_advance_due(false) {
            fences.advance(WallClock::from_unix_ms(unix_ms), 0);
        }
    }

    fn grant(&mut self) -> Result<(), FenceFell> {
        let node = &mut self.nodes[self.here];
        if !std::mem::replace(&mut node.raised, true) && !self.setting.without_raise {
            node.fences.request_advance(AdvanceReason::Slot);
        }
        self.raise(self.here);
        let fence = self.nodes[self.here].fences.next_fence().expect("few grants");
        let last = std::mem::replace(&mut self.granted, fence);
        if fence > last { Ok(()) } else { Err(FenceFell) }
    }

    fn look(&mut self, node: usize) {
        self.nodes[node].raised &= self.here == node;
    }
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
        if setting.moves > 0 {
            events.push(SlotEvent::Move);
        }
        for node in 0..2 {
            if setting.promotions > 0 {
                events.push(SlotEvent::Promotion(node));
            }
            events.push(SlotEvent::Look(node));
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
                (0..2).for_each(|node| self.look(node));
            }
            SlotEvent::Grant => {
                self.setting.grants -= 1;
                return self.grant();
            }
            SlotEvent::Move => {
                self.setting.moves -= 1;
                self.ms += 1;
                self.here = 1 - self.here;
                if !self.setting.back_at_once {
                    self.look(1 - self.here);
                }
            }
            SlotEvent::Look(node) => self.look(node),
            SlotEvent::Promotion(node) => {
                self.setting.promotions -= 1;
                self.ms += 1;
                self.nodes[node].raised = false;
                self.nodes[node].fences.request_advance(AdvanceReason::Promotion);
            }
        }
        Ok(())
    }
}

impl fmt::Display for SlotEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "-- a tick --"),
            Self::Grant => write!(f, "a grant"),
            Self::Move => write!(f, "the slot moves"),
            Self::Look(node) => write!(f, "{node} looks at its slots"),
            Self::Promotion(node) => write!(f, "the replica of {node} takes over"),
        }
    }
}
