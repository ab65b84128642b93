//! Clients that acquire the lock on a majority, and everything that can happen to them and the servers.
//!
//! A client may ask any server first, so that clients that disagree about the first server are covered. Requests are
//! granted late as well: after the guard was handed out, and after the client has died. A client dies, gives up or
//! releases at any time; its holds then end one by one.

use std::fmt;

use super::server::{GRACE, Server};
use super::setting::{Breach, Fence, Setting};
use super::{MAJORITY, SERVERS};
use crate::search::World;

/// A broken guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two guards are valid at once.
    TwoGuards,
    /// A guard's fence is not above all earlier ones.
    FenceFell,
}

/// Indices.
type ClientId = usize;
type ServerId = usize;

#[derive(Clone, Copy, Debug, Hash)]
pub enum Event {
    /// ACQUIRE, with MINFENCE or not, is granted, or repeated by a holder.
    Acquire(ClientId, ServerId, Option<Fence>, Reply),
    /// ACQUIRE for the doorway is granted, which takes a fence.
    Doorway(ClientId, ServerId),
    /// EXTEND with MINFENCE.
    Raise(ClientId, ServerId, Fence, Reply),
    /// The guard is handed out with this fence.
    Publish(ClientId, Fence),
    /// The client gives up, releases, or dies; its guard is valid no longer.
    Stop(ClientId),
    /// A lease ends, or is released.
    HoldEnds(ClientId, ServerId),
    /// It has all its data, and starts at once.
    Restart(ServerId),
    /// It has lost its data, and begins a grace period.
    Crash(ServerId),
    GraceEnds(ServerId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Arrives,
    IsLost,
}

#[derive(Clone, Copy, Hash)]
pub struct Quorum<'a> {
    setting: Ignored<'a>,
    servers: [Server; SERVERS],
    clients: [Client; 3],
    /// The largest fence that was handed out.
    highest: Fence,
    restarts_left: u8,
}

/// The setting never changes.
#[derive(Clone, Copy)]
struct Ignored<'a>(&'a Setting);

impl std::hash::Hash for Ignored<'_> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, Default, Hash)]
struct Client {
    phase: Phase,
    /// The fence in the first reply, or that of the doorway.
    first: Option<Fence>,
    /// What it knows of its fence on each server.
    known: [Option<Fence>; SERVERS],
    /// How often each server may still grant it the lock.
    grants_left: [u8; SERVERS],
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Acquiring,
    /// It has a guard that relies on its holds on these servers.
    Valid([bool; SERVERS]),
    Stopped,
}

impl<'a> Quorum<'a> {
    pub fn new(setting: &'a Setting) -> Self {
        let server = |index: usize| Server {
            counter: setting.counters[index],
            holder: None,
            clock: setting.clocks[index],
            grace: None,
        };
        let client = Client {
            grants_left: setting.grants,
            ..Client::default()
        };
        Self {
            setting: Ignored(setting),
            servers: std::array::from_fn(server),
            clients: [client; 3],
            highest: 0,
            restarts_left: setting.restarts,
        }
    }

    fn breach(&self) -> Option<Breach> {
        self.setting.0.breach
    }

    fn acquire_events(&self, client: usize, server: usize, events: &mut Vec<Event>) {
        let Client { first, known, .. } = &self.clients[client];
        let grants_left = self.clients[client].grants_left;
        let is_holder = self.servers[server].is_held_by(client);
        let may_be_granted = self.servers[server].holder.is_none() && grants_left[server] > 0;
        if known[server].is_some() || !(is_holder || may_be_granted) || !self.may_begin(client) {
            return;
        }
        // The copy of a request that was sent before the first reply has no minimum.
        let mut minima = vec![None];
        if self.setting.0.min_fence && !is_holder {
            minima.extend(first.map(Some));
            minima.extend(self.setting.0.absurd_min_fence.map(Some));
        }
        for min in minima {
            // A repeated request changes nothing.
            let replies = self.replies(client);
            for reply in replies.filter(|reply| !(is_holder && *reply == Reply::IsLost)) {
                events.push(Event::Acquire(client, server, min, reply));
            }
        }
    }

    /// Before its first request for the lock.
    fn doorway_event(&self, client: usize, server: usize) -> Option<Event> {
        let Client {
            phase,
            first,
            grants_left,
            ..
        } = &self.clients[client];
        let has_asked = *grants_left != self.setting.0.grants;
        let may_enter = self.setting.0.doorway && *phase == Phase::Acquiring && first.is_none() && !has_asked;
        may_enter.then_some(Event::Doorway(client, server))
    }

    /// All clients are alike, so only one order of their first grants needs to be searched.
    fn may_begin(&self, client: usize) -> bool {
        let previous = client.checked_sub(1).map(|previous| self.clients[previous]);
        previous.is_none_or(|previous| previous.grants_left != self.setting.0.grants)
    }

    fn raise_events(&self, client: usize, server: usize, events: &mut Vec<Event>) {
        let known = &self.clients[client].known;
        if self.breach() == Some(Breach::NoRaise) || !self.may_have_been_granted(client, server) {
            return;
        }
        for to in known.iter().flatten().copied() {
            if known[server].is_some_and(|fence| fence >= to) {
                continue;
            }
            let replies = self.replies(client);
            events.extend(replies.map(|reply| Event::Raise(client, server, to, reply)));
        }
    }

    /// Nobody is there for the replies to a client that has stopped.
    fn replies(&self, client: usize) -> impl Iterator<Item = Reply> + use<> {
        let has_stopped = self.clients[client].phase == Phase::Stopped;
        let arrives = (!has_stopped).then_some(Reply::Arrives);
        let is_lost = (has_stopped || self.setting.0.lost_replies).then_some(Reply::IsLost);
        arrives.into_iter().chain(is_lost)
    }

    /// A raise may arrive after the hold has ended. If it succeeds, the client counts on the renewed lease.
    fn may_have_been_granted(&self, client: usize, server: usize) -> bool {
        let (setting, client) = (self.setting.0, &self.clients[client]);
        let was_granted = client.grants_left[server] < setting.grants[server];
        client.known[server].is_some() || setting.slow_clients && was_granted
    }

    /// The fences with which a guard may be handed out.
    fn publish_events(&self, client: usize, events: &mut Vec<Event>) {
        let Client { phase, known, .. } = &self.clients[client];
        let largest = known.iter().flatten().max();
        for fence in known.iter().flatten().copied() {
            let count = |is_counted: &dyn Fn(Fence) -> bool| {
                known.iter().flatten().filter(|known| is_counted(**known)).count()
            };
            let confirmed = match self.breach() {
                Some(Breach::NoRaise | Breach::RaiseNotAwaited) if Some(&fence) == largest => {
                    count(&|_| true)
                }
                Some(Breach::LargerFenceCounts) => count(&|known| known >= fence),
                _ => count(&|known| known == fence),
            };
            if *phase == Phase::Acquiring && confirmed >= MAJORITY {
                events.push(Event::Publish(client, fence));
            }
        }
    }

    /// A lease that a guard relies on does not end.
    fn may_end(&self, client: usize, server: usize) -> bool {
        self.servers[server].is_held_by(client)
            && match &self.clients[client].phase {
                Phase::Stopped => true,
                Phase::Acquiring => self.setting.0.slow_clients,
                Phase::Valid(relied_on) => {
                    !relied_on[server] || self.breach() == Some(Breach::GuardOutlivesLease)
                }
            }
    }

    fn server_events(&self, server: usize, events: &mut Vec<Event>) {
        match self.servers[server].grace {
            None if self.restarts_left > 0 && server < self.setting.0.restarting => {
                events.extend([Event::Restart(server), Event::Crash(server)]);
            }
            // As long as the longest lease: what it forgot has ended.
            Some(forgotten)
                if self.breach() == Some(Breach::NoGrace)
                    || forgotten.is_none_or(|client| self.clients[client].phase == Phase::Stopped) =>
            {
                events.push(Event::GraceEnds(server));
            }
            None | Some(_) => {}
        }
    }

    /// Forgets what no event depends on any more: that keeps the number of states small.
    fn forget(&mut self, client: usize) {
        let has_hold = self.servers.iter().any(|server| server.is_held_by(client));
        let client = &mut self.clients[client];
        if client.phase == Phase::Stopped && !has_hold && !self.setting.0.slow_clients {
            client.known = [None; SERVERS];
            client.first.take_if(|_| client.grants_left == [0; SERVERS]);
        }
    }

    fn acquire(&mut self, client: usize, server: usize, min: Option<Fence>, reply: Reply) {
        let was_free = self.servers[server].holder.is_none();
        let fence = self.servers[server].acquire(client, min, self.setting.0);
        let asking = &mut self.clients[client];
        if was_free && fence.is_some() {
            asking.grants_left[server] -= 1;
        }
        if reply == Reply::Arrives {
            asking.known[server] = fence;
            asking.first = asking.first.or(fence);
        }
    }

    fn raise(&mut self, client: usize, server: usize, to: Fence, reply: Reply) {
        let fence = self.servers[server].raise(client, to, self.setting.0);
        if reply == Reply::Arrives {
            // After an error it asks again with its ACQUIRE.
            self.clients[client].known[server] = fence;
        }
    }

    fn publish(&mut self, client: usize, fence: Fence) -> Result<(), Violation> {
        let is_valid = |client: &Client| matches!(client.phase, Phase::Valid(_));
        if self.clients.iter().any(is_valid) {
            return Err(Violation::TwoGuards);
        }
        if fence <= self.highest {
            return Err(Violation::FenceFell);
        }
        self.highest = fence;
        let relied_on = |known: Option<Fence>| match self.breach() {
            Some(Breach::NoRaise | Breach::RaiseNotAwaited | Breach::LargerFenceCounts) => known.is_some(),
            _ => known == Some(fence),
        };
        self.clients[client].phase = Phase::Valid(self.clients[client].known.map(relied_on));
        Ok(())
    }
}

impl World for Quorum<'_> {
    type Event = Event;
    type Violation = Violation;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for client in 0..self.setting.0.clients {
            for server in 0..SERVERS {
                if self.servers[server].grace.is_none() {
                    events.extend(self.doorway_event(client, server));
                    self.acquire_events(client, server, &mut events);
                    self.raise_events(client, server, &mut events);
                }
                if self.may_end(client, server) {
                    events.push(Event::HoldEnds(client, server));
                }
            }
            self.publish_events(client, &mut events);
            if self.clients[client].phase != Phase::Stopped {
                events.push(Event::Stop(client));
            }
        }
        for server in 0..SERVERS {
            self.server_events(server, &mut events);
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Acquire(client, server, min, reply) => self.acquire(client, server, min, reply),
            Event::Doorway(client, server) => {
                self.servers[server].counter += 1;
                self.clients[client].first = Some(self.servers[server].counter);
            }
            Event::Raise(client, server, to, reply) => self.raise(client, server, to, reply),
            Event::Publish(client, fence) => return self.publish(client, fence),
            Event::Stop(client) => {
                self.clients[client].phase = Phase::Stopped;
                self.forget(client);
            }
            Event::HoldEnds(client, server) => {
                self.servers[server].end_hold_of(client);
                // Its clock tells it before.
                if self.clients[client].phase == Phase::Acquiring {
                    self.clients[client].known[server] = None;
                }
                self.forget(client);
            }
            Event::Restart(server) => {
                self.restarts_left -= 1;
                self.servers[server].restart();
            }
            Event::Crash(server) => {
                self.restarts_left -= 1;
                self.servers[server].crash();
            }
            Event::GraceEnds(server) => {
                self.servers[server].end_grace(self.setting.0);
                // As much time has passed for all.
                self.servers.iter_mut().for_each(|server| server.clock += GRACE);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: &usize| ["alice", "bob", "carol"][*client];
        let lost = |reply: &Reply| match reply {
            Reply::Arrives => "",
            Reply::IsLost => ", reply lost",
        };
        match self {
            Self::Acquire(client, server, min, reply) => {
                write!(f, "{} to {server}: ACQUIRE", name(client))?;
                min.map_or(Ok(()), |min| write!(f, " MINFENCE {min}"))?;
                write!(f, "{}", lost(reply))
            }
            Self::Doorway(client, server) => write!(f, "{} passes the doorway of {server}", name(client)),
            Self::Raise(client, server, to, reply) => {
                write!(
                    f,
                    "{} to {server}: EXTEND MINFENCE {to}{}",
                    name(client),
                    lost(reply)
                )
            }
            Self::Publish(client, fence) => write!(f, "{} has the lock with fence {fence}", name(client)),
            Self::Stop(client) => write!(f, "{} stops", name(client)),
            Self::HoldEnds(client, server) => write!(f, "{}'s hold on {server} ends", name(client)),
            Self::Restart(server) => write!(f, "{server} restarts"),
            Self::Crash(server) => write!(f, "{server} restarts without data"),
            Self::GraceEnds(server) => write!(f, "grace of {server} ends"),
        }
    }
}
