//! Servers, owners, time, and all that can befall them.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::server::{Saved, Server, Told};
use super::setting::{Breach, LONGEST_LEASE_TICKS, Log, OldPrimary, Setting, TICK_MS, Watch};
use crate::search::World;
use dlock_core::{
    Acquire, Acquired, Checkpoint, Effects, Error, Event as News, Extend, Holds, Instant, Limit, Release,
    Replication, WallClock,
};

/// 2025, so that fences are as long as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;
const OWNERS: [&str; 2] = ["alice", "bob"];

/// A promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two owners are sure that they hold the lock, and at least one not to share it.
    Overlap,
    /// A grant has a fence below that of an earlier one, or of one by a primary that others have replaced.
    FenceFell,
    /// Two grants have the same fence.
    SameFence,
    /// A holder that was known when the grace began is told in it that it holds nothing.
    HoldLost,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Tick,
    Acquire {
        owner: usize,
        server: usize,
        shared: bool,
        lease_ticks: u64,
    },
    Extend {
        owner: usize,
        server: usize,
    },
    Release {
        owner: usize,
        server: usize,
    },
    /// The replica hears nothing any more.
    LinkBreaks {
        replica: usize,
    },
    /// Everything so far is in the log.
    Fsync {
        server: usize,
    },
    /// The timer: a pending grace begins, and is told of.
    Cron {
        server: usize,
    },
    Promotion {
        replica: usize,
        dice: u64,
    },
    Kill {
        server: usize,
    },
    Start {
        server: usize,
    },
    /// The server becomes a replica of the primary and gets everything as a whole.
    Attach {
        server: usize,
        primary: usize,
    },
    ClockSetBack,
}

/// The world.
#[derive(Clone)]
pub struct Failover<'a> {
    setting: &'a Setting,
    tick: u64,
    nodes: Vec<Node>,
    owners: [Owner; OWNERS.len()],
    /// The smallest and the largest fence that each line of primaries has granted. A promotion begins a line.
    granted: Vec<Option<(u64, u64)>>,
    grants_left: u8,
    /// So many promotions and starts there were: no two in the same millisecond.
    raises: u64,
    promotions_left: u8,
    kills_left: u8,
    clock_jumps_left: u8,
}

#[derive(Clone, Hash)]
struct Node {
    server: Server,
    role: Role,
    line: usize,
    /// So many milliseconds into a tick it became a primary.
    began_ms: u64,
    log: Saved,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// `lost_at`: when it lost its first replica.
    Primary {
        lost_at: Option<u64>,
    },
    Replica {
        of: Option<usize>,
    },
    Down,
}

/// What an owner knows.
#[derive(Clone, Copy, Default, Hash)]
struct Owner {
    /// The fence of its latest grant, unless it has given that up or was told that it is over.
    fence: Option<u64>,
    /// Until when it is sure to hold the lock.
    sure_until_ms: u64,
    shared: bool,
}

impl<'a> Failover<'a> {
    pub fn new(setting: &'a Setting) -> Self {
        let node = |index| Node {
            server: Server::starting(),
            role: match index {
                0 => Role::Primary { lost_at: None },
                _ => Role::Replica { of: Some(0) },
            },
            line: 0,
            began_ms: 0,
            log: Saved::default(),
        };
        let mut world = Self {
            setting,
            tick: 0,
            nodes: (0..setting.servers).map(node).collect(),
            owners: Default::default(),
            granted: vec![None],
            grants_left: setting.grants,
            raises: 0,
            promotions_left: setting.promotions,
            kills_left: setting.kills,
            clock_jumps_left: setting.clock_jumps,
        };
        // The first start has forgotten nothing.
        let (calm, now) = (Setting::default(), world.now());
        world.nodes[0].server.settle(now, &calm);
        world.advance_fences(0);
        if !setting.fresh {
            let fence = world.nodes[0]
                .server
                .engine
                .fences
                .next_fence()
                .expect("there are numbers left");
            world.tell(
                0,
                &Told::Sync(Checkpoint {
                    fence,
                    grace_left_ms: 0,
                }),
            );
        }
        world
    }

    fn now(&self) -> Instant {
        Instant::default().after_ms(self.now_ms())
    }

    fn wall_clock(&self, server: usize) -> WallClock {
        let ms = UNIX_MS + self.now_ms() + self.nodes[server].began_ms;
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

    /// Whether it still grants and extends.
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
                events.push(Event::Acquire {
                    owner,
                    server,
                    shared: false,
                    lease_ticks,
                });
                if self.setting.shared {
                    events.push(Event::Acquire {
                        owner,
                        server,
                        shared: true,
                        lease_ticks,
                    });
                }
            }
        }
        if self.owners[owner].fence.is_some() && (self.is_sure(owner) || self.setting.late_extend) {
            events.push(Event::Extend { owner, server });
        }
        if self.is_sure(owner) {
            events.push(Event::Release { owner, server });
        }
    }

    fn server_events(&self, server: usize, events: &mut Vec<Event>) {
        let node = &self.nodes[server];
        match node.role {
            Role::Primary { .. } => {
                if self.setting.log == Log::Behind {
                    events.push(Event::Fsync { server });
                }
                let untold = node.server.engine.checkpoint_due || node.server.engine.grace.is_pending();
                if untold {
                    events.push(Event::Cron { server });
                }
                if self.kills_left > 0 && (self.setting.kill_at_once || !untold) {
                    events.push(Event::Kill { server });
                }
            }
            Role::Replica { of } => {
                if of.is_some() && self.setting.links_break {
                    events.push(Event::LinkBreaks { replica: server });
                }
                if self.promotions_left > 0 && self.may_be_promoted(of) {
                    let dice = if self.setting.breach == Some(Breach::SameDice) {
                        [5, 5]
                    } else {
                        [1, 9]
                    };
                    // Different servers roll different dice, in either order.
                    events.push(Event::Promotion {
                        replica: server,
                        dice: dice[server % 2],
                    });
                    if self.setting.servers > 2 {
                        events.push(Event::Promotion {
                            replica: server,
                            dice: dice[(server + 1) % 2],
                        });
                    }
                }
                self.attach_events(server, events);
            }
            Role::Down => {
                let alone = !(0..self.nodes.len()).any(|other| self.is_primary(other));
                let newest = node.line == self.granted.len() - 1;
                if (alone && newest) || self.setting.starts_beside_another {
                    events.push(Event::Start { server });
                }
                self.attach_events(server, events);
            }
        }
    }

    /// A failover takes longer than the lag after which a primary stops.
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
            (0..self.nodes.len()).find(|other| self.is_primary(*other) && self.nodes[*other].line == newest);
        if let Some(primary) = primary.filter(|_| self.setting.attach)
            && self.nodes[server].role != (Role::Replica { of: Some(primary) })
        {
            events.push(Event::Attach { server, primary });
        }
    }

    fn tick(&mut self) {
        for server in 0..self.nodes.len() {
            if self.is_primary(server) {
                self.cron(server);
            }
        }
        self.tick += 1;
        let ended: Vec<usize> = (0..self.nodes.len())
            .filter(|server| self.serves(*server))
            .collect();
        for server in ended {
            let mut effects = Effects::default();
            let now = self.now();
            self.nodes[server].server.sweep(now, self.setting, &mut effects);
            self.replicate(server, &effects, None);
            self.cron(server);
        }
    }

    fn cron(&mut self, server: usize) {
        let now = self.now();
        self.nodes[server].server.settle(now, self.setting);
        if let Some(told) = self.nodes[server].server.sync(now) {
            self.tell(server, &told);
        }
    }

    fn acquire(&mut self, owner: usize, server: usize, shared: bool, lease_ticks: u64) -> Result<(), Broken> {
        let request = Acquire {
            owner: OWNERS[owner].as_bytes(),
            lease_ms: lease_ticks * TICK_MS,
            limit: if shared { Limit::SHARED } else { Limit::MUTEX },
            block: None,
            request_id: None,
        };
        let (now, mut effects) = (self.now(), Effects::default());
        let clock = self.wall_clock(server);
        let granted = self.nodes[server]
            .server
            .acquire(&request, now, clock, self.setting, &mut effects);
        self.replicate(server, &effects, None);
        let Ok(Acquired::Granted(granted)) = granted else {
            return Ok(());
        };
        self.grants_left -= 1;
        self.owners[owner] = Owner {
            fence: Some(granted.fence),
            sure_until_ms: self.now_ms() + granted.lease_ms,
            shared,
        };
        if effects.events.contains(&News::Acquired) {
            self.check_fence(server, granted.fence)?;
        }
        self.check_overlap()
    }

    fn extend(&mut self, owner: usize, server: usize) -> Result<(), Broken> {
        let (now, mut effects) = (self.now(), Effects::default());
        let request = Extend {
            owner: OWNERS[owner].as_bytes(),
            lease_ms: LONGEST_LEASE_TICKS * TICK_MS,
            fence: self.owners[owner].fence,
        };
        let extended = self.nodes[server]
            .server
            .extend(&request, now, self.setting, &mut effects);
        self.replicate(server, &effects, None);
        match extended {
            Ok(lease_ms) => {
                let sure_until_ms = self.now_ms() + lease_ms;
                let sure = &mut self.owners[owner].sure_until_ms;
                *sure = sure_until_ms.max(*sure);
                self.check_overlap()
            }
            Err(refusal) => self.check_refusal(owner, server, refusal),
        }
    }

    /// An owner that gives up its hold is sure of nothing any more, whatever the answer is.
    fn release(&mut self, owner: usize, server: usize) {
        let (now, mut effects) = (self.now(), Effects::default());
        let request = Release {
            owner: OWNERS[owner].as_bytes(),
            holds: Holds::One,
            fence: self.owners[owner].fence,
        };
        // Refused, it was no holder there.
        let _ = self.nodes[server]
            .server
            .release(&request, now, self.setting, &mut effects);
        self.replicate(server, &effects, Some(request));
        self.owners[owner] = Owner::default();
    }

    fn replicate(&mut self, server: usize, effects: &Effects, as_it_came: Option<Release<'_>>) {
        match (effects.replication, as_it_came) {
            (Replication::Change, _) => self.tell(server, &Told::Change(effects.change())),
            (Replication::Verbatim, Some(request)) => self.tell(server, &Told::Release(request)),
            (Replication::Nothing, _) | (Replication::Verbatim, None) => {}
        }
    }

    fn tell(&mut self, server: usize, told: &Told<'_>) {
        let now = self.now();
        for node in &mut self.nodes {
            if node.role == (Role::Replica { of: Some(server) }) {
                node.server.hear(told, now, self.setting);
            }
        }
        for server in 0..self.nodes.len() {
            if self.setting.log == Log::Always && self.nodes[server].role != Role::Down {
                self.fsync(server);
            }
        }
    }

    fn fsync(&mut self, server: usize) {
        self.nodes[server].log = self.nodes[server].server.save(self.now());
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

    fn promote(&mut self, replica: usize, dice: u64) {
        if self.setting.old_primary == OldPrimary::Dies {
            (0..self.nodes.len())
                .filter(|server| self.is_primary(*server))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|server| self.kill(server));
        }
        self.link_breaks(replica);
        self.promotions_left -= 1;
        self.raises += 1;
        self.granted.push(None);
        let line = self.granted.len() - 1;
        let node = &mut self.nodes[replica];
        node.role = Role::Primary { lost_at: None };
        node.line = line;
        node.server.promote(self.setting, dice);
        node.began_ms = self.raises;
        self.advance_fences(replica);
    }

    /// As the module does it: at the first tick, long before anything else happens.
    fn advance_fences(&mut self, server: usize) {
        let clock = self.wall_clock(server);
        self.nodes[server].server.advance_fences(clock);
    }

    fn kill(&mut self, server: usize) {
        for replica in 0..self.nodes.len() {
            if self.nodes[replica].role == (Role::Replica { of: Some(server) }) {
                self.nodes[replica].role = Role::Replica { of: None };
            }
        }
        let node = &mut self.nodes[server];
        node.role = Role::Down;
        node.server = Server::starting();
    }

    fn start(&mut self, server: usize) {
        let now = self.now();
        self.raises += 1;
        let node = &mut self.nodes[server];
        node.server = match self.setting.log {
            Log::None => Server::starting(),
            Log::Always | Log::Behind => Server::load(&node.log, now, self.setting),
        };
        node.role = Role::Primary { lost_at: None };
        node.began_ms = self.raises;
        node.server.settle(now, self.setting);
        self.advance_fences(server);
    }

    fn attach(&mut self, server: usize, primary: usize) {
        let now = self.now();
        let saved = self.nodes[primary].server.save(now);
        let line = self.nodes[primary].line;
        let node = &mut self.nodes[server];
        node.server = Server::load(&saved, now, self.setting);
        node.server.engine.demote();
        node.role = Role::Replica { of: Some(primary) };
        node.line = line;
        if self.setting.log == Log::Always {
            self.fsync(server);
        }
    }

    fn check_overlap(&self) -> Result<(), Broken> {
        let sure: Vec<&Owner> = (0..OWNERS.len())
            .filter(|owner| self.is_sure(*owner))
            .map(|owner| &self.owners[owner])
            .collect();
        let excludes = sure.iter().any(|owner| !owner.shared);
        if sure.len() > 1 && excludes && self.setting.watch != Watch::Fences {
            Err(Broken::Overlap)
        } else {
            Ok(())
        }
    }

    /// Each line of primaries grants larger fences than those before it, and than it has granted before.
    fn check_fence(&mut self, server: usize, fence: u64) -> Result<(), Broken> {
        if matches!(self.setting.watch, Watch::Holds | Watch::Overlaps) {
            return Ok(());
        }
        let line = self.nodes[server].line;
        for (other, granted) in self.granted.iter().enumerate() {
            let Some((least, most)) = *granted else { continue };
            if (least..=most).contains(&fence) && (fence == least || fence == most) {
                return Err(Broken::SameFence);
            }
            let in_order = if other <= line {
                fence > most
            } else {
                fence < least
            };
            if !in_order {
                return Err(Broken::FenceFell);
            }
        }
        let least = self.granted[line].map_or(fence, |(least, _)| least);
        self.granted[line] = Some((least, fence));
        Ok(())
    }

    fn check_refusal(&mut self, owner: usize, server: usize, refusal: Error) -> Result<(), Broken> {
        if !matches!(refusal, Error::NotHeld | Error::NotOwner | Error::Stale(_)) {
            return Ok(());
        }
        let fence = std::mem::take(&mut self.owners[owner].fence);
        let was_sure = self.is_sure(owner);
        self.owners[owner] = Owner::default();
        let server = &self.nodes[server].server;
        let known =
            fence.is_some_and(|fence| server.kept.contains(&fence)) && self.setting.watch != Watch::Overlaps;
        if was_sure && known && server.in_grace(self.now()) {
            Err(Broken::HoldLost)
        } else {
            Ok(())
        }
    }
}

impl World for Failover<'_> {
    type Event = Event;
    type Broken = Broken;

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

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Tick => self.tick(),
            Event::Acquire {
                owner,
                server,
                shared,
                lease_ticks,
            } => {
                return self.acquire(owner, server, shared, lease_ticks);
            }
            Event::Extend { owner, server } => return self.extend(owner, server),
            Event::Release { owner, server } => self.release(owner, server),
            Event::LinkBreaks { replica } => self.link_breaks(replica),
            Event::Fsync { server } => self.fsync(server),
            Event::Cron { server } => self.cron(server),
            Event::Promotion { replica, dice } => self.promote(replica, dice),
            Event::Kill { server } => {
                self.kills_left -= 1;
                self.kill(server);
            }
            Event::Start { server } => self.start(server),
            Event::Attach { server, primary } => self.attach(server, primary),
            Event::ClockSetBack => self.clock_jumps_left -= 1,
        }
        Ok(())
    }
}

/// What no event looks at any more makes no difference.
impl Hash for Failover<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tick, &self.nodes, self.owners, &self.granted).hash(state);
        (
            self.grants_left,
            self.raises,
            self.promotions_left,
            self.kills_left,
            self.clock_jumps_left,
        )
            .hash(state);
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |owner: &usize| OWNERS[*owner];
        match self {
            Self::Tick => write!(f, "-- a tick --"),
            Self::Acquire {
                owner,
                server,
                shared,
                lease_ticks,
            } => {
                let shared = if *shared { " SHARED" } else { "" };
                write!(f, "{} to {server}: ACQUIRE {lease_ticks}{shared}", name(owner))
            }
            Self::Extend { owner, server } => {
                write!(f, "{} to {server}: EXTEND {LONGEST_LEASE_TICKS}", name(owner))
            }
            Self::Release { owner, server } => write!(f, "{} to {server}: RELEASE", name(owner)),
            Self::LinkBreaks { replica } => write!(f, "{replica} hears nothing any more"),
            Self::Fsync { server } => write!(f, "{server} writes its log"),
            Self::Cron { server } => write!(f, "cron of {server}"),
            Self::Promotion { replica, dice } => write!(f, "{replica} is promoted (dice {dice})"),
            Self::Kill { server } => write!(f, "{server} is killed"),
            Self::Start { server } => write!(f, "{server} starts"),
            Self::Attach { server, primary } => write!(f, "{server} becomes a replica of {primary}"),
            Self::ClockSetBack => write!(f, "all wall clocks are set back by a tick"),
        }
    }
}
