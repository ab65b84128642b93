//! The machine of an acquisition at three servers: every order of its messages, any guess of a fence, deaths, lost raises,
//! leases that end, restarts with data and without.
//!
//! Requests of a client to a server arrive in order, as the client library sees to, and so do the replies; a request whose
//! reply is lost, or whose place is, is sent again and has the same reply, so only the loss of a raise matters. The doorway
//! decides the order of requests; it grants a fence at any time.

use std::collections::VecDeque;
use std::fmt;

use redis_dlock_quorum::acquisition::{Acquisition, Input, Output};

use crate::servers::{Breach, Fence, SERVERS, Server, Setting};
use dlock_model::search::World;

/// A broken guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two guards are valid at once.
    TwoGuards,
    /// A guard's fence is not above all earlier ones.
    FenceFell,
    /// A client has overtaken one that passed the doorway before.
    OutOfOrder,
    /// A client raises the fence of one grant again and again.
    RaisesWithoutEnd,
}

/// How often a client raises the fence of one grant: to those of the other servers, one after the other.
const MAX_RAISES: u8 = SERVERS as u8;

/// A rule of the client that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientBreach {
    /// The fence that was asked for counts, whatever the server has granted.
    GuessTrusted,
    /// A raise counts before it is confirmed.
    RaiseNotAwaited,
    /// A raise is not even sent.
    NoRaise,
    /// A raise that was rejected is tried again.
    RejectedRaiseRepeated,
    /// A majority that holds under the fence or a larger one is enough.
    LargerFenceCounts,
    /// A guard is used after a lease of its majority has ended.
    GuardOutlivesLease,
    /// Who has less than a majority keeps it.
    GrantsKept,
    /// Who gives up its grants keeps its other places in the queues.
    PlacesKept,
    /// A server that was down is not asked again.
    NotAskedAgain,
}

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub struct DrivenSetting {
    pub world: Setting,
    /// By client: the fence that it asks for first.
    pub guesses: &'static [Fence],
    /// Whether clients wait in the queues.
    pub waits: bool,
    /// Whether they do so at once, without an attempt before.
    pub queues_at_once: bool,
    /// Whether the doorway keeps the requests of clients apart, as it does while they agree about the first server.
    pub in_order: bool,
    /// Whether only ACQUIREs are under way for a time, and everything else at once: who is served depends on their order.
    pub only_requests_travel: bool,
    /// How often a client asks a server, in all: an attempt, and each wait in the queues.
    pub asks: u8,
    /// How many raises may be lost, on the way there or back.
    pub lost_raises: u8,
    /// How many clients may give up or die during their acquisition.
    pub deaths: u8,
    pub breach: Option<ClientBreach>,
}

impl Default for DrivenSetting {
    fn default() -> Self {
        Self {
            world: Setting::default(),
            guesses: &[15, 30],
            waits: false,
            queues_at_once: false,
            in_order: false,
            only_requests_travel: false,
            asks: 2,
            lost_raises: 0,
            deaths: 0,
            breach: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Ask { ask: u8, queues: bool, min: Fence },
    Release { ask: u8 },
    Raise { ask: u8, to: Fence },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Granted(Fence),
    Refused,
    TooLarge,
    Raised(Fence),
    RaiseRejected,
    RaiseFailed,
    /// It grants nothing for now.
    Failed,
}

/// Between a client and a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Link {
    /// The number of its last ACQUIRE. Replies to earlier ones change nothing.
    ask: u8,
    /// How often the client has raised the fence of that.
    raises: u8,
    requests: VecDeque<Request>,
    replies: VecDeque<(u8, Reply)>,
    /// The client knows that it grants nothing for now.
    is_down: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    machine: Option<Acquisition>,
    links: [Link; SERVERS],
    enters_doorway: bool,
    is_impatient: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Acquiring,
    /// It has a guard that relies on its holds on these servers.
    Valid([bool; SERVERS]),
    Over,
}

#[derive(Clone)]
pub struct Driven<'a> {
    setting: &'a DrivenSetting,
    servers: [Server; SERVERS],
    /// By server: who waits, with the number of its request and its fence.
    queues: [VecDeque<(usize, u8, Fence)>; SERVERS],
    /// By server: the number of the request that the holder holds it by.
    held_by: [u8; SERVERS],
    clients: Vec<Client>,
    /// Who has passed the doorway and was not served yet.
    passed: Vec<usize>,
    highest: Fence,
    restarts_left: u8,
    lost_left: u8,
    deaths_left: u8,
}

impl std::hash::Hash for Driven<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (
            &self.servers,
            &self.queues,
            self.held_by,
            &self.clients,
            &self.passed,
        )
            .hash(state);
        (self.highest, self.restarts_left, self.lost_left, self.deaths_left).hash(state);
    }
}

#[derive(Clone, Copy, Debug)]
pub enum DrivenEvent {
    Begins(usize),
    Arrives(usize, usize),
    Replied(usize, usize),
    /// A raise, or the reply to it, is lost.
    RaiseLost(usize, usize, bool),
    PatienceOver(usize),
    InDoorway(usize),
    Split(usize),
    Releases(usize),
    /// The client gives up or dies.
    GivesUp(usize),
    /// The server grants again.
    IsUpAgain(usize, usize),
    /// The lease of a client that is still acquiring ends, at a server that has forgotten it.
    ForgottenLeaseEnds(usize, usize),
    /// A lease ends, and the client knows it before.
    LeaseEnds(usize, usize),
    Restarts(usize),
    Crashes(usize),
    GraceEnds(usize),
}

impl<'a> Driven<'a> {
    pub fn new(setting: &'a DrivenSetting) -> Self {
        let Setting {
            counters,
            clocks,
            restarts,
            ..
        } = setting.world;
        let server = |index: usize| Server {
            counter: counters[index],
            holder: None,
            clock: clocks[index],
            grace: None,
        };
        let client = Client {
            machine: None,
            links: Default::default(),
            enters_doorway: false,
            is_impatient: false,
            phase: Phase::Acquiring,
        };
        Self {
            setting,
            servers: std::array::from_fn(server),
            queues: Default::default(),
            held_by: [0; SERVERS],
            clients: vec![client; setting.guesses.len()],
            passed: vec![],
            highest: 0,
            restarts_left: restarts,
            lost_left: setting.lost_raises,
            deaths_left: setting.deaths,
        }
    }

    /// Whether all clients have had the lock, or given up.
    pub fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.phase == Phase::Over)
    }

    fn follow(&mut self, client: usize, outputs: Vec<Output>) -> Result<(), Violation> {
        for output in outputs {
            match output {
                Output::Ask {
                    server,
                    queues,
                    min_fence,
                } => {
                    let link = &mut self.clients[client].links[server];
                    link.ask += 1;
                    link.raises = 0;
                    link.replies.clear();
                    link.is_down = false;
                    let (ask, min) = (link.ask, min_fence as Fence);
                    let mut places = self.queues[server].iter_mut();
                    if let Some(kept) = places.find(|waiter| waiter.0 == client)
                        && self.setting.breach == Some(ClientBreach::PlacesKept)
                    {
                        kept.1 = ask;
                        continue;
                    }
                    link.requests.push_back(Request::Ask { ask, queues, min });
                }
                Output::GiveBack(server) => {
                    let link = &mut self.clients[client].links[server];
                    link.replies.clear();
                    let ask = link.ask;
                    self.send(client, server, Request::Release { ask });
                }
                Output::Raise(server, to) => self.raise(client, server, to as Fence)?,
                Output::EnterDoorway => self.clients[client].enters_doorway = true,
                Output::StartPatience => {}
                Output::HandOut(fence) => self.hand_out(client, fence as Fence)?,
                Output::Busy { .. } if self.setting.waits => {
                    let outputs = self.machine(client).queue();
                    self.follow(client, outputs)?;
                }
                Output::Busy { .. } | Output::TooFew => self.clients[client].phase = Phase::Over,
            }
        }
        Ok(())
    }

    fn raise(&mut self, client: usize, server: usize, to: Fence) -> Result<(), Violation> {
        let link = &mut self.clients[client].links[server];
        let ask = link.ask;
        link.raises += 1;
        if link.raises > MAX_RAISES {
            return Err(Violation::RaisesWithoutEnd);
        }
        if self.setting.breach != Some(ClientBreach::NoRaise) {
            self.send(client, server, Request::Raise { ask, to });
        }
        match self.setting.breach {
            Some(ClientBreach::NoRaise | ClientBreach::RaiseNotAwaited) => {
                self.tell(client, Input::Raised(server, u64::from(to)))
            }
            _ => Ok(()),
        }
    }

    /// After what was sent before.
    fn send(&mut self, client: usize, server: usize, request: Request) {
        let requests = &mut self.clients[client].links[server].requests;
        if self.setting.only_requests_travel {
            // What is given back may as well never arrive.
            requests.clear();
            self.serve(client, server, request);
        } else {
            requests.push_back(request);
        }
    }

    fn hand_out(&mut self, client: usize, fence: Fence) -> Result<(), Violation> {
        let is_valid = |client: &Client| matches!(client.phase, Phase::Valid(_));
        if self.clients.iter().any(is_valid) {
            return Err(Violation::TwoGuards);
        }
        if fence <= self.highest {
            return Err(Violation::FenceFell);
        }
        self.highest = fence;
        if self.setting.in_order && self.passed.first().is_some_and(|first| *first != client) {
            return Err(Violation::OutOfOrder);
        }
        self.passed.retain(|passed| *passed != client);
        // It relies on all grants that it knows of: they are at least a majority.
        let relied_on = std::array::from_fn(|server| self.servers[server].is_held_by(client));
        self.clients[client].phase = Phase::Valid(relied_on);
        self.clients[client].is_impatient = false;
        self.clients[client]
            .links
            .iter_mut()
            .for_each(|link| link.replies.clear());
        Ok(())
    }

    fn machine(&mut self, client: usize) -> &mut Acquisition {
        let guess = u64::from(self.setting.guesses[client]);
        let machine = &mut self.clients[client].machine;
        machine.get_or_insert_with(|| Acquisition::new(SERVERS, true, guess))
    }

    fn tell(&mut self, client: usize, input: Input) -> Result<(), Violation> {
        let outputs = self.machine(client).on(input);
        self.follow(client, outputs)
    }

    /// What the machine would do, if anything.
    fn would_do(&self, client: usize, input: Input) -> bool {
        let machine = self.clients[client].machine.clone();
        machine.is_some_and(|mut machine| !machine.on(input).is_empty())
    }

    fn serve(&mut self, client: usize, server: usize, request: Request) {
        let setting = &self.setting.world;
        let reply = match request {
            Request::Ask { ask, queues, min } => {
                let this = &mut self.servers[server];
                let is_too_large = min > this.counter.max(this.clock + setting.grace)
                    && setting.breach != Some(Breach::UnboundedMinFence);
                if this.grace.is_some() {
                    (ask, Reply::Failed)
                } else if this.is_held_by(client) && self.held_by[server] == ask {
                    // A repetition.
                    return self.grant(client, server, ask, min);
                } else if is_too_large {
                    (ask, Reply::TooLarge)
                } else if this.holder.is_none() && self.queues[server].is_empty() {
                    return self.grant(client, server, ask, min);
                } else if queues {
                    return self.queues[server].push_back((client, ask, min));
                } else {
                    (ask, Reply::Refused)
                }
            }
            Request::Release { ask } => {
                self.queues[server].retain(|waiter| !(waiter.0 == client && waiter.1 <= ask));
                if self.servers[server].is_held_by(client) && self.held_by[server] <= ask {
                    self.servers[server].end_hold_of(client);
                }
                return self.grant_next(server);
            }
            Request::Raise { ask, to } => {
                let is_ours = self.servers[server].is_held_by(client) && self.held_by[server] == ask;
                let grants_nothing = self.servers[server].grace.is_some();
                match self.servers[server].raise(client, to, setting) {
                    Some(to) if is_ours => (ask, Reply::Raised(to)),
                    _ if grants_nothing => (ask, Reply::RaiseFailed),
                    _ => (ask, Reply::RaiseRejected),
                }
            }
        };
        self.reply(client, server, reply);
    }

    fn grant(&mut self, client: usize, server: usize, ask: u8, min: Fence) {
        let Some(fence) = self.servers[server].acquire(client, Some(min), &self.setting.world) else {
            return;
        };
        self.held_by[server] = ask;
        let told = match self.setting.breach {
            Some(ClientBreach::GuessTrusted) => min,
            Some(ClientBreach::LargerFenceCounts) => self.smallest_fence_of(client).unwrap_or(fence),
            _ => fence,
        };
        self.reply(client, server, (ask, Reply::Granted(told)));
    }

    fn smallest_fence_of(&self, client: usize) -> Option<Fence> {
        let holders = self.servers.iter().filter_map(|server| server.holder);
        let own = holders.filter(|(holder, _)| *holder == client);
        own.map(|(_, fence)| fence).min()
    }

    fn grant_next(&mut self, server: usize) {
        if self.servers[server].holder.is_none()
            && self.servers[server].grace.is_none()
            && let Some((client, ask, min)) = self.queues[server].pop_front()
        {
            self.grant(client, server, ask, min);
        }
    }

    /// Nobody is there for replies to what was given back.
    fn reply(&mut self, client: usize, server: usize, reply: (u8, Reply)) {
        let is_acquiring = self.clients[client].phase == Phase::Acquiring;
        let link = &mut self.clients[client].links[server];
        if is_acquiring && link.ask == reply.0 {
            link.replies.push_back(reply);
        }
    }

    /// What waits for a reply is sent again, by the client library.
    fn reconnect(&mut self, server: usize) {
        for (client, ask, min) in std::mem::take(&mut self.queues[server]) {
            let queues = true;
            let request = Request::Ask { ask, queues, min };
            self.clients[client].links[server].requests.push_front(request);
        }
    }

    fn split(&mut self, client: usize) -> Result<(), Violation> {
        let mut outputs = self.machine(client).on(Input::Split);
        if self.setting.breach == Some(ClientBreach::PlacesKept) {
            // It asks those again that had granted it, and nobody else.
            outputs.retain(
                |output| !matches!(output, Output::GiveBack(server) if self.queues_at(client, *server)),
            );
        }
        self.follow(client, outputs)
    }

    fn queues_at(&self, client: usize, server: usize) -> bool {
        self.queues[server].iter().any(|waiter| waiter.0 == client)
    }

    fn stop(&mut self, client: usize) {
        self.clients[client].phase = Phase::Over;
        self.clients[client].enters_doorway = false;
        self.passed.retain(|passed| *passed != client);
        for server in 0..SERVERS {
            let link = &mut self.clients[client].links[server];
            link.replies.clear();
            // Late copies of its requests may still arrive before.
            let ask = link.ask;
            self.send(client, server, Request::Release { ask });
        }
    }

    fn client_events(&self, client: usize, events: &mut Vec<DrivenEvent>) {
        let this = &self.clients[client];
        if this.machine.is_none() {
            events.push(DrivenEvent::Begins(client));
            return;
        }
        for (server, link) in this.links.iter().enumerate() {
            if !link.requests.is_empty() {
                events.push(DrivenEvent::Arrives(client, server));
            }
            if self.lost_left > 0 && matches!(link.requests.front(), Some(Request::Raise { .. })) {
                events.extend([true, false].map(|arrives| DrivenEvent::RaiseLost(client, server, arrives)));
            }
            if !link.replies.is_empty() {
                events.push(DrivenEvent::Replied(client, server));
            }
            let relies = match this.phase {
                Phase::Acquiring => !self.setting.world.slow_clients,
                Phase::Valid(relied_on) => {
                    relied_on[server] && self.setting.breach != Some(ClientBreach::GuardOutlivesLease)
                }
                Phase::Over => false,
            };
            if self.servers[server].is_held_by(client) && !relies {
                events.push(DrivenEvent::LeaseEnds(client, server));
            }
        }
        if this.phase == Phase::Over {
            return;
        }
        if this.phase != Phase::Acquiring {
            events.push(DrivenEvent::Releases(client));
            return;
        }
        if self.deaths_left > 0 {
            events.push(DrivenEvent::GivesUp(client));
        }
        if !this.is_impatient && self.would_do(client, Input::PatienceOver) {
            events.push(DrivenEvent::PatienceOver(client));
        }
        let may_ask = this.links.iter().all(|link| link.ask < self.setting.asks);
        let is_in_turn = !self.setting.in_order || !self.requests_are_under_way();
        if this.enters_doorway && may_ask && is_in_turn {
            events.push(DrivenEvent::InDoorway(client));
        }
        let machine = this.machine.as_ref();
        let queues = machine.is_some_and(|machine| !machine.is_in_doorway()) && self.setting.waits;
        let has_grants = machine.is_some_and(Acquisition::has_grants);
        // A grace period is over before a client gives up for the second time.
        let are_all_up = self.servers.iter().all(|server| server.grace.is_none());
        if queues
            && has_grants
            && may_ask
            && are_all_up
            && self.is_quiet()
            && self.setting.breach != Some(ClientBreach::GrantsKept)
        {
            events.push(DrivenEvent::Split(client));
        }
        let forgot = |server: &usize| self.servers[*server].grace == Some(Some(client));
        let forgetful = (0..SERVERS).filter(forgot);
        events.extend(forgetful.map(|server| DrivenEvent::ForgottenLeaseEnds(client, server)));
        let is_up_again = |server: &usize| {
            let link = &this.links[*server];
            link.is_down && link.ask < self.setting.asks && self.servers[*server].grace.is_none()
        };
        if queues && self.setting.breach != Some(ClientBreach::NotAskedAgain) {
            let up_again = (0..SERVERS).filter(is_up_again);
            events.extend(up_again.map(|server| DrivenEvent::IsUpAgain(client, server)));
        }
    }

    /// Those of a client that has passed the doorway.
    fn requests_are_under_way(&self) -> bool {
        let links = self.clients.iter().flat_map(|client| &client.links);
        let mut requests = links.flat_map(|link| &link.requests);
        requests.any(|request| matches!(request, Request::Ask { queues: true, .. }))
    }

    /// Timers are far above a round trip: all that was sent has arrived.
    fn is_quiet(&self) -> bool {
        let mut links = self.clients.iter().flat_map(|client| &client.links);
        links.all(|link| link.requests.is_empty() && link.replies.is_empty())
    }

    fn server_events(&self, server: usize, events: &mut Vec<DrivenEvent>) {
        let world = &self.setting.world;
        match self.servers[server].grace {
            None if self.restarts_left > 0 && server < world.restarting => {
                events.extend([DrivenEvent::Restarts(server), DrivenEvent::Crashes(server)]);
            }
            // As long as the longest lease: what it forgot has ended.
            Some(forgotten)
                if world.breach == Some(Breach::NoGrace)
                    || forgotten.is_none_or(|client| self.clients[client].phase == Phase::Over) =>
            {
                events.push(DrivenEvent::GraceEnds(server));
            }
            None | Some(_) => {}
        }
    }
}

impl World for Driven<'_> {
    type Event = DrivenEvent;
    type Violation = Violation;

    fn events(&self) -> Vec<DrivenEvent> {
        let mut events = vec![];
        (0..self.clients.len()).for_each(|client| self.client_events(client, &mut events));
        (0..SERVERS).for_each(|server| self.server_events(server, &mut events));
        events
    }

    fn happen(&mut self, event: DrivenEvent) -> Result<(), Violation> {
        self.step(event)?;
        while self.setting.only_requests_travel
            && let Some(event) = self.next_reply()
        {
            self.step(event)?;
        }
        Ok(())
    }
}

impl Driven<'_> {
    fn next_reply(&self) -> Option<DrivenEvent> {
        let mut events = vec![];
        (0..self.clients.len()).for_each(|client| self.client_events(client, &mut events));
        let is_reply =
            |event: &DrivenEvent| matches!(event, DrivenEvent::Replied(..) | DrivenEvent::PatienceOver(_));
        events.into_iter().find(is_reply)
    }

    fn step(&mut self, event: DrivenEvent) -> Result<(), Violation> {
        match event {
            DrivenEvent::Begins(client) => {
                let outputs = match self.setting.queues_at_once {
                    true => self.machine(client).queue(),
                    false => self.machine(client).attempt(|_| true),
                };
                self.follow(client, outputs)?;
            }
            DrivenEvent::Arrives(client, server) => {
                if let Some(request) = self.clients[client].links[server].requests.pop_front() {
                    self.serve(client, server, request);
                }
            }
            DrivenEvent::Replied(client, server) => {
                let Some((_, reply)) = self.clients[client].links[server].replies.pop_front() else {
                    return Ok(());
                };
                let input = match reply {
                    Reply::Granted(fence) => Input::Granted(server, u64::from(fence)),
                    Reply::Refused => Input::Refused(server),
                    Reply::TooLarge => Input::TooLarge(server),
                    Reply::Raised(to) => Input::Raised(server, u64::from(to)),
                    Reply::RaiseRejected
                        if self.setting.breach == Some(ClientBreach::RejectedRaiseRepeated) =>
                    {
                        Input::Granted(server, 1)
                    }
                    Reply::RaiseRejected => Input::RaiseRejected(server),
                    Reply::RaiseFailed => Input::Lost(server),
                    Reply::Failed => {
                        self.clients[client].links[server].is_down = true;
                        Input::Failed(server)
                    }
                };
                self.tell(client, input)?;
            }
            DrivenEvent::RaiseLost(client, server, arrives) => {
                self.lost_left -= 1;
                let request = self.clients[client].links[server].requests.pop_front();
                if let Some(request) = request.filter(|_| arrives) {
                    self.serve(client, server, request);
                    self.clients[client].links[server].replies.pop_back();
                }
                if self.clients[client].phase == Phase::Acquiring {
                    self.tell(client, Input::Lost(server))?;
                }
            }
            DrivenEvent::PatienceOver(client) => {
                self.clients[client].is_impatient = true;
                self.tell(client, Input::PatienceOver)?;
            }
            DrivenEvent::InDoorway(client) => {
                self.clients[client].enters_doorway = false;
                self.clients[client].is_impatient = false;
                self.passed.retain(|passed| *passed != client);
                self.passed.push(client);
                self.servers[0].counter += 1;
                let fence = u64::from(self.servers[0].counter);
                self.tell(client, Input::InDoorway(fence))?;
            }
            DrivenEvent::Split(client) => self.split(client)?,
            DrivenEvent::Releases(client) => self.stop(client),
            DrivenEvent::GivesUp(client) => {
                self.deaths_left -= 1;
                self.stop(client);
            }
            DrivenEvent::ForgottenLeaseEnds(client, server) => {
                self.servers[server].grace = Some(None);
                self.clients[client].links[server].replies.clear();
                self.tell(client, Input::Lost(server))?;
            }
            DrivenEvent::IsUpAgain(client, server) => self.tell(client, Input::Lost(server))?,
            DrivenEvent::LeaseEnds(client, server) => {
                let is_known = self.clients[client].links[server].replies.is_empty();
                self.servers[server].end_hold_of(client);
                if self.clients[client].phase == Phase::Acquiring {
                    // Granted late, or lost: it does not count.
                    self.clients[client].links[server].replies.clear();
                    let input = if is_known {
                        Input::Lost(server)
                    } else {
                        Input::Failed(server)
                    };
                    self.tell(client, input)?;
                }
                self.grant_next(server);
            }
            DrivenEvent::Restarts(server) => {
                self.restarts_left -= 1;
                self.servers[server].restart();
                self.reconnect(server);
            }
            DrivenEvent::Crashes(server) => {
                self.restarts_left -= 1;
                self.servers[server].crash();
                self.reconnect(server);
            }
            DrivenEvent::GraceEnds(server) => {
                self.servers[server].end_grace(&self.setting.world);
                // As much time has passed for all.
                let grace = self.setting.world.grace;
                self.servers.iter_mut().for_each(|server| server.clock += grace);
            }
        }
        Ok(())
    }
}

impl fmt::Display for DrivenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
