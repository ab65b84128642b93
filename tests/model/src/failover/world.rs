//! Servers, owners, time and failures.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::server::{Message, Moment, Saved, Server};
use super::setting::{Aof, Breach, Checked, LONGEST_LEASE_TICKS, OldPrimary, Setting, TICK_MS};
use crate::search::World;
use dlock_core::{
    Acquire, Acquired, Checkpoint, Effects, Error, Event as LockEvent, Extend, Holds, Instant, Limit,
    Release, WallClock,
};

/// A time in 2025, so that fences have as many digits as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
const OWNERS: [&str; 2] = ["alice", "bob"];

/// A guarantee that is violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two owners are sure to hold the lock, and at least one of them exclusively.
    Overlap,
    /// A grant has a smaller fence than an earlier one, or than one of a primary that was replaced.
    FenceFell,
    /// Two grants have the same fence.
    SameFence,
    /// In a grace period, a holder that was known when it began is rejected as no holder.
    HoldLost,
}

/// Indices.
type OwnerId = usize;
type ServerId = usize;

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Tick,
    /// Whether it is SHARED, and its lease in ticks.
    Acquire(OwnerId, ServerId, bool, u64),
    Extend(OwnerId, ServerId),
    Release(OwnerId, ServerId),
    /// The replica is disconnected from its primary.
    LinkBreaks(ServerId),
    /// The AOF is written to disk.
    Fsync(ServerId),
    /// The cron: a pending grace period starts and is replicated.
    Cron(ServerId),
    /// Of a replica, with these random bits.
    Promotion(ServerId, u64),
    Kill(ServerId),
    Start(ServerId),
    /// The first becomes a replica of the second, with a full resync.
    Attach(ServerId, ServerId),
    ClockSetBack,
}

/// A state of the model.
#[derive(Clone)]
pub struct Failover<'a> {
    setting: &'a Setting,
    tick: u64,
    nodes: Vec<Node>,
    owners: [Owner; OWNERS.len()],
    /// The smallest and the largest fence granted in each epoch. A promotion starts an epoch.
    granted: Vec<Option<(u64, u64)>>,
    grants_left: u8,
    /// The number of promotions and starts: no two happen in the same millisecond.
    starts: u64,
    promotions_left: u8,
    kills_left: u8,
    clock_jumps_left: u8,
}

#[derive(Clone, Hash)]
struct Node {
    server: Server,
    role: Role,
    epoch: usize,
    /// How many milliseconds into a tick it became a primary.
    started_ms: u64,
    aof: Saved,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// `lost_at`: the tick in which it lost its first replica.
    Primary {
        lost_at: Option<u64>,
    },
    Replica {
        of: Option<usize>,
    },
    Down,
}

/// What a client knows about its hold.
#[derive(Clone, Copy, Default, Hash)]
struct Owner {
    /// The fence of its latest grant, until it releases the lock or is rejected.
    fence: Option<u64>,
    /// Until when it is sure to hold the lock.
    sure_until_ms: u64,
    shared: bool,
}

impl<'a> Failover<'a> {
    pub fn new(setting: &'a Setting) -> Self {
        let node = |index| Node {
            server: Server::starting(setting),
            role: match index {
                0 => Role::Primary { lost_at: None },
                _ => Role::Replica { of: Some(0) },
            },
            epoch: 0,
            started_ms: 0,
            aof: Saved::default(),
        };
        let mut world = Self {
            setting,
            tick: 0,
            nodes: (0..setting.servers).map(node).collect(),
            owners: Default::default(),
            granted: vec![None],
            grants_left: setting.grants,
            starts: 0,
            promotions_left: setting.promotions,
            kills_left: setting.kills,
            clock_jumps_left: setting.clock_jumps,
        };
        // The first start has lost no data: it needs no grace period.
        world.nodes[0].server.set_policy(&Setting::default());
        world.cron(0);
        world.nodes[0].server.set_policy(setting);
        if !setting.fresh {
            let fence = world.nodes[0].server.next_fence();
            let grace_left_ms = 0;
            world.propagate(0, &Message::Checkpoint(Checkpoint { fence, grace_left_ms }));
        }
        world
    }

    fn now(&self) -> Instant {
        Instant::default().after_ms(self.now_ms())
    }

    fn moment(&self, server: usize) -> Moment {
        Moment {
            now: self.now(),
            wall_clock: self.wall_clock(server),
        }
    }

    fn wall_clock(&self, server: usize) -> WallClock {
        let ms = UNIX_MS + self.now_ms() + self.nodes[server].started_ms;
        let behind_ticks = u64::from(self.setting.clock_jumps - self.clock_jumps_left);
        WallClock::from_unix_ms(ms - behind_ticks * TICK_MS)
    }

    fn now_ms(&self) -> u64 {
        self.tick * TICK_MS
    }

    fn is_sure(&self, owner: usize) -> bool {
        self.owners[owner].sure_until_ms > self.now_ms()
    }

    fn is_primary(&self, server: usize) -> bool {
        matches!(self.nodes[server].role, Role::Primary { .. })
    }

    /// Whether the server still accepts writes.
    fn serves(&self, server: usize) -> bool {
        match self.nodes[server].role {
            Role::Primary { lost_at } => {
                self.setting.old_primary != OldPrimary::StopsWithoutReplicas
                    || lost_at.is_none_or(|lost_at| lost_at == self.tick)
            }
            Role::Replica { .. } | Role::Down => false,
        }
    }

    fn owner_events(&self, owner: usize, server: usize, events: &mut Vec<Event>) {
        if !self.is_sure(owner) && self.grants_left > 0 {
            for lease_ticks in 1..=LONGEST_LEASE_TICKS {
                events.push(Event::Acquire(owner, server, false, lease_ticks));
                if self.setting.shared {
                    events.push(Event::Acquire(owner, server, true, lease_ticks));
                }
            }
        }
        if self.owners[owner].fence.is_some() && (self.is_sure(owner) || self.setting.late_extend) {
            events.push(Event::Extend(owner, server));
        }
        if self.is_sure(owner) {
            events.push(Event::Release(owner, server));
        }
    }

    fn server_events(&self, server: usize, events: &mut Vec<Event>) {
        let node = &self.nodes[server];
        match node.role {
            Role::Primary { .. } => {
                if self.setting.aof == Aof::Everysec {
                    events.push(Event::Fsync(server));
                }
                let checkpoint_due = node.server.state.checkpoint_due || node.server.state.grace.is_pending();
                if checkpoint_due {
                    events.push(Event::Cron(server));
                }
                if self.kills_left > 0 && (self.setting.kill_before_checkpoint || !checkpoint_due) {
                    events.push(Event::Kill(server));
                }
            }
            Role::Replica { of } => {
                if of.is_some() && self.setting.links_break {
                    events.push(Event::LinkBreaks(server));
                }
                if self.promotions_left > 0 && self.may_be_promoted(of) {
                    let random = match self.setting.breach {
                        Some(Breach::SameRandomBits) => [5, 5],
                        _ => [1, 9],
                    };
                    // Two servers have different random bits. With three servers, either may have the larger ones.
                    let orders = if self.setting.servers > 2 { 2 } else { 1 };
                    let random = (0..orders).map(|order| random[(server + order) % 2]);
                    events.extend(random.map(|random| Event::Promotion(server, random)));
                }
                self.attach_events(server, events);
            }
            Role::Down => {
                let alone = !(0..self.nodes.len()).any(|other| self.is_primary(other));
                let newest = node.epoch == self.granted.len() - 1;
                if (alone && newest) || self.setting.starts_beside_another {
                    events.push(Event::Start(server));
                }
                self.attach_events(server, events);
            }
        }
    }

    /// A failover takes longer than the lag after which an old primary without replicas stops.
    fn may_be_promoted(&self, of: Option<usize>) -> bool {
        match (self.setting.old_primary, of) {
            (OldPrimary::StopsWithoutReplicas, Some(_)) => false,
            (OldPrimary::StopsWithoutReplicas, None) => {
                !(0..self.nodes.len()).any(|server| self.is_primary(server) && self.serves(server))
            }
            (_, of) => of.is_some() || self.setting.links_break,
        }
    }

    fn attach_events(&self, server: usize, events: &mut Vec<Event>) {
        let newest = self.granted.len() - 1;
        let primary =
            (0..self.nodes.len()).find(|other| self.is_primary(*other) && self.nodes[*other].epoch == newest);
        if let Some(primary) = primary.filter(|_| self.setting.attach)
            && self.nodes[server].role != (Role::Replica { of: Some(primary) })
        {
            events.push(Event::Attach(server, primary));
        }
    }

    fn tick(&mut self) {
        for server in 0..self.nodes.len() {
            if self.is_primary(server) {
                self.cron(server);
            }
        }
        self.tick += 1;
        for server in 0..self.nodes.len() {
            if !self.serves(server) {
                continue;
            }
            let mut effects = Effects::default();
            let at = self.moment(server);
            self.nodes[server].server.sweep(at, self.setting, &mut effects);
            self.replicate(server, &effects);
            self.cron(server);
        }
    }

    fn cron(&mut self, server: usize) {
        let at = self.moment(server);
        self.nodes[server].server.tick(at);
        if let Some(checkpoint) = self.nodes[server].server.due_checkpoint(at.now) {
            self.propagate(server, &checkpoint);
        }
    }

    fn acquire(
        &mut self,
        owner: usize,
        server: usize,
        shared: bool,
        lease_ticks: u64,
    ) -> Result<(), Violation> {
        let request = Acquire {
            owner: OWNERS[owner].as_bytes(),
            lease_ms: lease_ticks * TICK_MS,
            limit: if shared { Limit::SHARED } else { Limit::MUTEX },
            wait: None,
            request_id: None,
            min_fence: None,
        };
        let (at, mut effects) = (self.moment(server), Effects::default());
        let node = &mut self.nodes[server];
        let granted = node.server.acquire(&request, at, self.setting, &mut effects);
        self.replicate(server, &effects);
        let Ok(Acquired::Granted(granted)) = granted else {
            return Ok(());
        };
        self.grants_left -= 1;
        self.owners[owner] = Owner {
            fence: Some(granted.fence),
            sure_until_ms: self.now_ms() + granted.lease_ms,
            shared,
        };
        if effects.events.contains(&LockEvent::Acquired) {
            self.check_fence(server, granted.fence)?;
        }
        self.check_overlap()
    }

    fn extend(&mut self, owner: usize, server: usize) -> Result<(), Violation> {
        let (at, mut effects) = (self.moment(server), Effects::default());
        let request = Extend {
            owner: OWNERS[owner].as_bytes(),
            lease_ms: LONGEST_LEASE_TICKS * TICK_MS,
            grant: self.owners[owner].fence.into(),
            min_fence: None,
        };
        let node = &mut self.nodes[server];
        let extended = node.server.extend(&request, at, self.setting, &mut effects);
        self.replicate(server, &effects);
        match extended {
            Ok(lease_ms) => {
                let sure_until_ms = self.now_ms() + lease_ms;
                let sure = &mut self.owners[owner].sure_until_ms;
                *sure = sure_until_ms.max(*sure);
                self.check_overlap()
            }
            Err(error) => self.check_error(owner, server, error),
        }
    }

    /// An owner that releases its hold is no longer sure of it, whatever the reply is.
    fn release(&mut self, owner: usize, server: usize) {
        let (at, mut effects) = (self.moment(server), Effects::default());
        let request = Release {
            owner: OWNERS[owner].as_bytes(),
            holds: Holds::One,
            fence: self.owners[owner].fence,
        };
        // An error means that it was no holder there.
        let node = &mut self.nodes[server];
        let _ = node.server.release(&request, at, self.setting, &mut effects);
        self.replicate(server, &effects);
        self.owners[owner] = Owner::default();
    }

    fn replicate(&mut self, server: usize, effects: &Effects) {
        if effects.is_changed {
            let change = effects.change().expect("a change that is encoded");
            self.propagate(server, &Message::Change(change));
        }
    }

    fn propagate(&mut self, server: usize, message: &Message<'_>) {
        let now = self.now();
        for node in &mut self.nodes {
            if node.role == (Role::Replica { of: Some(server) }) {
                node.server.apply(message, now, self.setting);
            }
        }
        for server in 0..self.nodes.len() {
            if self.setting.aof == Aof::Always && self.nodes[server].role != Role::Down {
                self.fsync(server);
            }
        }
    }

    fn fsync(&mut self, server: usize) {
        self.nodes[server].aof = self.nodes[server].server.save(self.now());
    }

    fn link_breaks(&mut self, replica: usize) {
        if let Role::Replica { of: Some(primary) } = self.nodes[replica].role {
            self.nodes[replica].role = Role::Replica { of: None };
            let tick = self.tick;
            if let Role::Primary { lost_at } = &mut self.nodes[primary].role {
                lost_at.get_or_insert(tick);
            }
        }
    }

    /// Its first tick comes later, and perhaps a request before it.
    fn promote(&mut self, replica: usize, random: u64) {
        if self.setting.old_primary == OldPrimary::Dies {
            for server in 0..self.nodes.len() {
                if self.is_primary(server) {
                    self.kill(server);
                }
            }
        }
        self.link_breaks(replica);
        self.promotions_left -= 1;
        self.starts += 1;
        self.granted.push(None);
        let epoch = self.granted.len() - 1;
        let node = &mut self.nodes[replica];
        node.role = Role::Primary { lost_at: None };
        node.epoch = epoch;
        node.server.promote(self.setting, random);
        node.started_ms = self.starts;
    }

    fn kill(&mut self, server: usize) {
        for replica in 0..self.nodes.len() {
            if self.nodes[replica].role == (Role::Replica { of: Some(server) }) {
                self.nodes[replica].role = Role::Replica { of: None };
            }
        }
        let node = &mut self.nodes[server];
        node.role = Role::Down;
        node.server = Server::starting(self.setting);
    }

    fn start(&mut self, server: usize) {
        let now = self.now();
        self.starts += 1;
        let node = &mut self.nodes[server];
        node.server = match self.setting.aof {
            Aof::None => Server::starting(self.setting),
            Aof::Always | Aof::Everysec => Server::load(&node.aof, now, self.setting),
        };
        node.role = Role::Primary { lost_at: None };
        node.started_ms = self.starts;
        let at = self.moment(server);
        self.nodes[server].server.start(at, self.setting);
    }

    fn attach(&mut self, server: usize, primary: usize) {
        let now = self.now();
        let saved = self.nodes[primary].server.save(now);
        let epoch = self.nodes[primary].epoch;
        let node = &mut self.nodes[server];
        node.server = Server::load(&saved, now, self.setting);
        node.server.state.demote();
        node.role = Role::Replica { of: Some(primary) };
        node.epoch = epoch;
        if self.setting.aof == Aof::Always {
            self.fsync(server);
        }
    }

    fn check_overlap(&self) -> Result<(), Violation> {
        let sure = (0..OWNERS.len()).filter(|owner| self.is_sure(*owner));
        let sure: Vec<&Owner> = sure.map(|owner| &self.owners[owner]).collect();
        let excludes = sure.iter().any(|owner| !owner.shared);
        let overlap = sure.len() > 1 && excludes && self.setting.checked != Checked::Fences;
        if overlap { Err(Violation::Overlap) } else { Ok(()) }
    }

    /// Each epoch has larger fences than all earlier epochs, and they rise within the epoch.
    fn check_fence(&mut self, server: usize, fence: u64) -> Result<(), Violation> {
        if matches!(self.setting.checked, Checked::Holds | Checked::Overlaps) {
            return Ok(());
        }
        let epoch = self.nodes[server].epoch;
        for (other, granted) in self.granted.iter().enumerate() {
            let Some((least, most)) = *granted else { continue };
            if (least..=most).contains(&fence) && (fence == least || fence == most) {
                return Err(Violation::SameFence);
            }
            let in_order = if other <= epoch {
                fence > most
            } else {
                fence < least
            };
            if !in_order {
                return Err(Violation::FenceFell);
            }
        }
        let least = self.granted[epoch].map_or(fence, |(least, _)| least);
        self.granted[epoch] = Some((least, fence));
        Ok(())
    }

    fn check_error(&mut self, owner: usize, server: usize, error: Error) -> Result<(), Violation> {
        if !matches!(error, Error::NotHeld | Error::NotOwner | Error::Stale) {
            return Ok(());
        }
        let fence = std::mem::take(&mut self.owners[owner].fence);
        let was_sure = self.is_sure(owner);
        self.owners[owner] = Owner::default();
        let server = &self.nodes[server].server;
        let known = fence.is_some_and(|fence| server.live_at_grace_begin.contains(&fence))
            && self.setting.checked != Checked::Overlaps;
        let lost = was_sure && known && server.in_grace(self.now());
        if lost { Err(Violation::HoldLost) } else { Ok(()) }
    }
}

impl World for Failover<'_> {
    type Event = Event;
    type Violation = Violation;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for server in 0..self.nodes.len() {
            self.server_events(server, &mut events);
            if self.serves(server) {
                (0..OWNERS.len()).for_each(|owner| self.owner_events(owner, server, &mut events));
            }
        }
        if self.clock_jumps_left > 0 {
            events.push(Event::ClockSetBack);
        }
        if self.tick < self.setting.ticks {
            events.push(Event::Tick);
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick => self.tick(),
            Event::Acquire(owner, server, shared, lease_ticks) => {
                return self.acquire(owner, server, shared, lease_ticks);
            }
            Event::Extend(owner, server) => return self.extend(owner, server),
            Event::Release(owner, server) => self.release(owner, server),
            Event::LinkBreaks(replica) => self.link_breaks(replica),
            Event::Fsync(server) => self.fsync(server),
            Event::Cron(server) => self.cron(server),
            Event::Promotion(replica, random) => self.promote(replica, random),
            Event::Kill(server) => {
                self.kills_left -= 1;
                self.kill(server);
            }
            Event::Start(server) => self.start(server),
            Event::Attach(server, primary) => self.attach(server, primary),
            Event::ClockSetBack => self.clock_jumps_left -= 1,
        }
        Ok(())
    }
}

/// All that future events depend on.
impl Hash for Failover<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tick, &self.nodes, self.owners, &self.granted).hash(state);
        (self.grants_left, self.starts, self.promotions_left).hash(state);
        (self.kills_left, self.clock_jumps_left).hash(state);
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |owner: &usize| OWNERS[*owner];
        match self {
            Self::Tick => write!(f, "-- tick --"),
            Self::Acquire(owner, server, shared, lease_ticks) => {
                let shared = if *shared { " SHARED" } else { "" };
                write!(f, "{} to {server}: ACQUIRE {lease_ticks}{shared}", name(owner))
            }
            Self::Extend(owner, server) => {
                write!(f, "{} to {server}: EXTEND {LONGEST_LEASE_TICKS}", name(owner))
            }
            Self::Release(owner, server) => write!(f, "{} to {server}: RELEASE", name(owner)),
            Self::LinkBreaks(replica) => write!(f, "link of {replica} breaks"),
            Self::Fsync(server) => write!(f, "{server} writes its AOF"),
            Self::Cron(server) => write!(f, "cron of {server}"),
            Self::Promotion(replica, random) => write!(f, "{replica} is promoted (random {random})"),
            Self::Kill(server) => write!(f, "{server} is killed"),
            Self::Start(server) => write!(f, "{server} starts"),
            Self::Attach(server, primary) => write!(f, "{server} becomes a replica of {primary}"),
            Self::ClockSetBack => write!(f, "wall clocks are set back by a tick"),
        }
    }
}
