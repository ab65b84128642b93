//! Clients, a server, the connections between them, and time.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::adapter::{Adapter, Asked, Called, Told, Waited};
use super::client::{Client, HasNoInbox, Present, Replied, Request};
use super::message::{Link, Ms, ToClient, ToServer};
use super::names::Canonical;
use super::server::{Lateness, Party};
use super::setting::{Breach, CLIENTS_ACT_MS, PASS_MS, PASSES, SecondName, Setting, TICK_MS};
use crate::search::World;
use dlock_core::{Call, Error};

/// A guarantee that is violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A client believes in a hold, before its local deadline, that it does not have.
    Overlap,
    /// A grant goes to another than the first in the order of arrival. A place ends by an answer, or with an inbox.
    Overtaken,
    /// The lock is held by a grant that nobody was told of, and nobody can read.
    Wasted,
    /// A waiter of a dead client is still there after the time of a call and that of its inbox.
    DeadWaiter,
    /// Nothing is under way, and a request is open whose answer will not come.
    Forgotten,
    /// Nothing is under way, and a client holds the lock and does not know it.
    Orphan,
    /// A client cannot have its own inbox.
    NoInbox,
    /// An inbox ends while its client cannot call.
    EndedInPause,
}

/// Indices.
type ClientId = u8;
type RequestId = u8;

#[derive(Clone, Copy, Debug)]
pub enum Event {
    Tick,
    /// A tick in which clients are paused.
    PausedTick,
    XReleases,
    CAsks,
    CReleases,
    FailOver,
    // The network and the server.
    Arrives(ClientId, Link, What),
    ArrivesLate(ClientId, u8, What),
    Cut(ClientId, Link),
    /// The server notices that the client of this call is gone.
    LosesReader(u8),
    TimesOut(ClientId, RequestId),
    /// A call that waited gets its reply.
    Replies(u8),
    /// A step of what an inbox leaves that has ended.
    Clears,
    // The clients.
    Reads(ClientId, Link),
    Notices(ClientId, Link),
    Asks(ClientId, RequestId),
    Withdraws(ClientId, RequestId),
    Releases(ClientId, RequestId),
    Calls(ClientId),
    Dies(ClientId),
}

/// A message to the server, as far as a trace shows it.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Acquire(RequestId),
    Release(RequestId),
    ReleaseForeign,
    /// Whether it makes an inbox.
    Grants(bool),
}

/// A state.
#[derive(Clone)]
pub struct Inboxes<'a> {
    setting: &'a Setting,
    server: Rc<Adapter>,
    /// What is hashed of the server.
    canonical: Rc<Canonical>,
    /// The server has changed since.
    is_touched: bool,
    clients: Vec<Client>,
    /// The calls that the server has not replied to.
    calls: Vec<Waiting>,
    c: Blocking,
    tick: u32,
    faults_left: u8,
    pauses_left: u8,
}

/// A call that waits, or that of C.
#[derive(Clone, Copy, Hash)]
struct Waiting {
    call: Call,
    /// The client, and the number of its inbox's name.
    client: Option<(ClientId, u8)>,
    /// The connection that it came on is the present one.
    is_fresh: bool,
    /// It is to be replied to.
    is_woken: bool,
}

/// What C does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Blocking {
    Idle,
    Waits,
    Holds,
    Done,
}

impl<'a> Inboxes<'a> {
    pub fn new(setting: &'a Setting) -> Self {
        let requests = setting.requests;
        let mut world = Self {
            setting,
            server: Rc::new(Adapter::new(CLIENTS_ACT_MS, setting.breach)),
            canonical: Rc::default(),
            is_touched: true,
            clients: (0..setting.clients)
                .map(|id| Client::new(id as u8, requests))
                .collect(),
            calls: Vec::new(),
            c: if setting.clients == 1 {
                Blocking::Idle
            } else {
                Blocking::Done
            },
            tick: 0,
            faults_left: setting.faults,
            pauses_left: setting.pauses,
        };
        for client in 0..setting.clients as u8 {
            if setting.second_name != SecondName::Own {
                world.client(client).share_name();
            }
            match setting.second_name {
                SecondName::Same if client == 1 => {}
                SecondName::Forked if client == 1 => world.client(client).cursor = world.clients[0].cursor,
                _ => world.begin_reading(client),
            }
        }
        world.refresh();
        world
    }

    /// Its inbox is made, and its reader waits.
    fn begin_reading(&mut self, client: ClientId) {
        for _ in 0..2 {
            let now = self.now();
            let cursor = self.client(client).cursor;
            self.client(client).call(cursor, now);
            self.arrive(client, Link::Reader);
            if cursor == 0 {
                assert!(self.read(client, Link::Reader).is_ok());
            }
        }
    }

    fn now(&self) -> Ms {
        self.tick * TICK_MS + CLIENTS_ACT_MS
    }

    /// Without those in which clients were paused.
    fn awake_ticks(&self) -> u32 {
        self.tick - u32::from(self.setting.pauses - self.pauses_left)
    }

    fn present(&self) -> Present {
        Present {
            now: self.now(),
            breach: self.setting.breach,
        }
    }

    fn client(&mut self, client: ClientId) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    fn server(&mut self) -> &mut Adapter {
        self.is_touched = true;
        Rc::make_mut(&mut self.server)
    }

    fn refresh(&mut self) {
        if std::mem::take(&mut self.is_touched) {
            self.canonical = Rc::new(Canonical::of(&*self.server));
        }
    }

    // The server.

    fn tick(&mut self, is_paused: bool) -> Result<(), Violation> {
        self.tick += 1;
        let inboxes = self.server.server.state.inboxes.ended_total();
        for pass in 0..=PASSES {
            let now = self.tick * TICK_MS + pass * PASS_MS;
            self.server().process(is_paused && pass == 0, now);
            self.settle(now);
        }
        if self.c == Blocking::Holds && self.holder() != Some(Party::C) {
            self.c = Blocking::Done;
        }
        let has_ended = self.server.server.state.inboxes.ended_total() > inboxes;
        if is_paused && has_ended {
            return Err(Violation::EndedInPause);
        }
        Ok(())
    }

    /// What the module does after each step, unless that is deferred.
    fn settle(&mut self, now: Ms) {
        loop {
            self.take_woken();
            if self.setting.deferred {
                return;
            }
            if let Some(place) = self.calls.iter().position(|waiting| waiting.is_woken) {
                self.reply(place, now);
            } else if !self.server.is_clear() {
                self.clear(now);
            } else {
                return;
            }
        }
    }

    fn take_woken(&mut self) {
        if self.server.server.woken.is_empty() {
            return;
        }
        for call in std::mem::take(&mut self.server().server.woken) {
            self.wake(call);
        }
    }

    fn wake(&mut self, call: Call) {
        match self.calls.iter_mut().find(|waiting| waiting.call == call) {
            Some(waiting) => waiting.is_woken = true,
            None => self.calls.push(Waiting {
                call,
                client: None,
                is_fresh: true,
                is_woken: true,
            }),
        }
    }

    fn reply(&mut self, place: usize, now: Ms) {
        let Waiting {
            call,
            client,
            is_fresh,
            ..
        } = self.calls.remove(place);
        let name = client.map_or(0, |(_, name)| name);
        let reply = self.server().reply(call, name, now);
        let Some((client, _)) = client else {
            assert!(matches!(reply, Some(Waited::Granted)), "the reply to C");
            self.c = Blocking::Holds;
            return;
        };
        let message = match reply {
            Some(Waited::Told(told)) => answers(told),
            Some(Waited::Granted) => panic!("GRANTS was replied to as BLOCK"),
            None => ToClient::Unblocked,
        };
        if is_fresh {
            self.send(client, Link::Reader, message);
        }
    }

    fn clear(&mut self, now: Ms) {
        self.server().clear(now);
        self.server().server.serve(now);
    }

    fn send(&mut self, client: ClientId, link: Link, message: ToClient) {
        let connection = self.client(client).link(link);
        if connection.is_up {
            connection.to_client.push(message);
        }
    }

    fn arrive(&mut self, client: ClientId, link: Link) {
        let message = self.client(client).link(link).to_server.remove(0);
        self.dispatch(client, message, false);
    }

    fn arrive_late(&mut self, client: ClientId, place: usize) {
        let tick = self.awake_ticks();
        let from = self.client(client);
        let message = from.late.remove(place);
        if from.died_at.is_some() {
            from.died_at = Some(tick);
        }
        self.dispatch(client, message, true);
    }

    fn dispatch(&mut self, client: ClientId, message: ToServer, is_late: bool) {
        let now = self.now();
        let reply = match message {
            ToServer::Acquire { request, sending, at } => {
                let name = self.client(client).name;
                let party = Party::Request(client, request);
                match self.server().acquire(party, name, is_late, now) {
                    Asked::Granted(lease_ms) => ToClient::Granted {
                        request,
                        lease_ms,
                        at,
                    },
                    Asked::Queued => ToClient::Queued { request, sending },
                    Asked::NoInbox => ToClient::NoInbox { request, sending },
                }
            }
            ToServer::Release { request, sending } => {
                self.server().server.release(Party::Request(client, request), now);
                ToClient::Released { request, sending }
            }
            ToServer::ReleaseForeign { client, request } => {
                self.server().server.release(Party::Request(client, request), now);
                return self.settle(now);
            }
            ToServer::Grants { cursor } => match self.receive(client, cursor, is_late) {
                Some(reply) => reply,
                None => return self.settle(now),
            },
        };
        if !is_late {
            self.send(client, message.link(), reply);
        }
        self.settle(now);
    }

    /// `None`: the call waits.
    fn receive(&mut self, client: ClientId, cursor: u64, is_late: bool) -> Option<ToClient> {
        let (now, name) = (self.now(), self.client(client).name);
        let Called { former, reply } = match self.server().receive(name, cursor, now) {
            Ok(called) => called,
            Err(Error::NoInbox) => return Some(ToClient::NoInboxOrOldCursor),
            Err(Error::BusyInbox) => return Some(ToClient::Busy),
            Err(error) => panic!("{error:?}"),
        };
        if let Some(former) = former {
            self.wake(former);
        }
        match reply {
            Ok(told) => Some(answers(told)),
            Err(call) => {
                self.calls.push(Waiting {
                    call,
                    client: Some((client, name)),
                    is_fresh: !is_late,
                    is_woken: false,
                });
                None
            }
        }
    }

    /// The calls of this client came on a connection that is not the present one any more.
    fn outdate_calls(&mut self, client: ClientId) {
        for waiting in &mut self.calls {
            if waiting.client.is_some_and(|(other, _)| other == client) {
                waiting.is_fresh = false;
            }
        }
    }

    fn fail_over(&mut self) {
        let now = self.now();
        self.faults_left -= 1;
        self.server().fail_over(now);
        self.calls.clear();
        for client in &mut self.clients {
            client.lose_server();
        }
        if self.c == Blocking::Waits {
            self.c = Blocking::Idle;
        }
    }

    fn holder(&self) -> Option<Party> {
        self.server.server.holder(self.now())
    }

    // Events.

    fn is_settled(&self) -> bool {
        self.server.is_clear() && !self.calls.iter().any(|waiting| waiting.is_woken)
    }

    fn server_events(&self, events: &mut Vec<Event>) {
        let is_settled = self.is_settled();
        if self.tick < self.setting.ticks && is_settled {
            events.push(Event::Tick);
            if self.pauses_left > 0 {
                events.push(Event::PausedTick);
            }
        }
        if self.holder() == Some(Party::X) {
            events.push(Event::XReleases);
        }
        match self.c {
            Blocking::Idle => events.push(Event::CAsks),
            Blocking::Holds => events.push(Event::CReleases),
            Blocking::Waits | Blocking::Done => {}
        }
        if self.faults_left > 0 && self.setting.failovers {
            events.push(Event::FailOver);
        }
        if !self.server.is_clear() {
            events.push(Event::Clears);
        }
        for (place, waiting) in self.calls.iter().enumerate() {
            if waiting.is_woken {
                events.push(Event::Replies(place as u8));
            }
            let is_lost = |(client, _): (ClientId, u8)| {
                let connection = &self.clients[usize::from(client)].reader;
                !waiting.is_fresh || !connection.is_up
            };
            if waiting.client.is_some_and(is_lost) {
                events.push(Event::LosesReader(place as u8));
            }
        }
    }

    fn meets_fault(&self, client: &Client) -> bool {
        self.faults_left > 0 && client.id == 0
    }

    fn network_events(&self, client: &Client, events: &mut Vec<Event>) {
        let (id, has_fault) = (client.id, self.meets_fault(client));
        for (link, connection) in [
            (Link::Requests, &client.connection),
            (Link::Reader, &client.reader),
        ] {
            if let Some(message) = connection.to_server.first() {
                events.push(Event::Arrives(id, link, What::of(*message)));
            }
            if !client.is_alive() {
                continue;
            }
            if !connection.to_client.is_empty() {
                events.push(Event::Reads(id, link));
            }
            if !connection.is_up {
                events.push(Event::Notices(id, link));
            } else if has_fault {
                events.push(Event::Cut(id, link));
            }
        }
        for (place, message) in client.late.iter().enumerate() {
            events.push(Event::ArrivesLate(id, place as u8, What::of(*message)));
        }
        if self.setting.timeouts {
            let requests = 0..client.requests.len() as u8;
            let times_out = |request: &RequestId| self.server.server.times_out_first(id, *request);
            events.extend(
                requests
                    .filter(times_out)
                    .map(|request| Event::TimesOut(id, request)),
            );
        }
    }

    fn client_events(&self, client: &Client, events: &mut Vec<Event>) {
        let id = client.id;
        if !client.is_alive() {
            return;
        }
        for (request, state) in (0..).zip(&client.requests) {
            match state {
                Request::Idle if client.may_ask() => events.push(Event::Asks(id, request)),
                Request::Open(open) => {
                    events.push(Event::Withdraws(id, request));
                    if client.may_ask_again(*open) && self.asks_again() {
                        events.push(Event::Asks(id, request));
                    }
                }
                Request::Held { .. } => events.push(Event::Releases(id, request)),
                Request::Idle | Request::Releasing | Request::Done => {}
            }
        }
        if client.called_at.is_none() {
            events.push(Event::Calls(id));
        }
        if self.meets_fault(client) && self.setting.kills {
            events.push(Event::Dies(id));
        }
    }

    fn asks_again(&self) -> bool {
        self.setting.breach != Some(Breach::NotRepeatedAfterNoInbox)
    }

    fn read(&mut self, client: ClientId, link: Link) -> Result<(), Violation> {
        let present = self.present();
        let client = self.client(client);
        let message = client.link(link).to_client.remove(0);
        client
            .read(message, present)
            .map_err(|HasNoInbox| Violation::NoInbox)
    }

    // What must hold.

    fn check(&self) -> Result<(), Violation> {
        if self.server.server.watch.is_overtaken {
            return Err(Violation::Overtaken);
        }
        if self.is_settled() && self.server.server.is_wasted(self.now()) {
            return Err(Violation::Wasted);
        }
        for client in &self.clients {
            self.check_holds(client)?;
            match client.died_at {
                Some(died_at) => self.check_dead(client, died_at)?,
                None => self.check_quiet(client)?,
            }
        }
        Ok(())
    }

    fn check_holds(&self, client: &Client) -> Result<(), Violation> {
        for (request, state) in (0..).zip(&client.requests) {
            if let Request::Held { until } = state
                && self.now() < *until
                && self.holder() != Some(Party::Request(client.id, request))
            {
                return Err(Violation::Overlap);
            }
        }
        Ok(())
    }

    /// A call and its inbox last a tick each.
    fn check_dead(&self, client: &Client, died_at: u32) -> Result<(), Violation> {
        let waits = |party: &Party| matches!(party, Party::Request(id, _) if *id == client.id);
        if self.awake_ticks() - died_at >= 2
            && self.is_settled()
            && self.server.server.waiting().iter().any(waits)
        {
            return Err(Violation::DeadWaiter);
        }
        Ok(())
    }

    fn check_quiet(&self, client: &Client) -> Result<(), Violation> {
        let server = &self.server.server;
        let Some(inbox) = server.inbox(client.name).filter(|_| self.is_quiet(client)) else {
            return Ok(());
        };
        for (request, state) in (0..).zip(&client.requests) {
            let party = Party::Request(client.id, request);
            let is_open = matches!(state, Request::Open(_));
            if is_open && server.inbox_of(party) != Some(inbox) {
                return Err(Violation::Forgotten);
            }
            let is_unknown = !is_open && !matches!(state, Request::Held { .. });
            let is_told = |lateness| lateness != Lateness::Untold;
            let hold = server.watch.hold.as_ref().map(|hold| hold.lateness);
            if self.holder() == Some(party) && is_unknown && hold.is_some_and(is_told) {
                return Err(Violation::Orphan);
            }
        }
        Ok(())
    }

    /// Its reader waits, no message is under way, and neither side has yet to notice a lost connection.
    fn is_quiet(&self, client: &Client) -> bool {
        let is_idle = [&client.connection, &client.reader].iter().all(|connection| {
            connection.is_up && connection.to_server.is_empty() && connection.to_client.is_empty()
        });
        let mut calls = self.calls.iter();
        let waits = calls.any(|waiting| waiting.client == Some((client.id, client.name)) && waiting.is_fresh);
        let asks_again = |request: &Request| {
            matches!(request, Request::Open(open) if open.reply == Replied::NoInbox) && self.asks_again()
        };
        is_idle
            && waits
            && self.is_settled()
            && client.called_at.is_some()
            && client.cursor != 0
            && !client.requests.iter().any(asks_again)
    }
}

impl World for Inboxes<'_> {
    type Event = Event;
    type Violation = Violation;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.server_events(&mut events);
        for client in &self.clients {
            self.network_events(client, &mut events);
            self.client_events(client, &mut events);
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        let (now, present) = (self.now(), self.present());
        match event {
            Event::Tick => self.tick(false)?,
            Event::PausedTick => {
                self.pauses_left -= 1;
                self.tick(true)?;
            }
            Event::XReleases => self.server().server.release(Party::X, now),
            Event::CAsks => {
                let asked = self.server().acquire(Party::C, 0, false, now);
                self.c = match asked {
                    Asked::Granted(_) => Blocking::Holds,
                    Asked::Queued => Blocking::Waits,
                    Asked::NoInbox => panic!("BLOCK needs no inbox"),
                };
            }
            Event::CReleases => {
                self.c = Blocking::Done;
                self.server().server.release(Party::C, now);
            }
            Event::FailOver => self.fail_over(),
            Event::Arrives(client, link, _) => self.arrive(client, link),
            Event::ArrivesLate(client, place, _) => self.arrive_late(client, usize::from(place)),
            Event::Cut(client, link) => {
                self.faults_left -= 1;
                self.client(client).lose(link);
            }
            Event::LosesReader(place) => {
                let waiting = self.calls.remove(usize::from(place));
                self.server().server.lose_reader(waiting.call, now);
            }
            Event::TimesOut(client, request) => self.server().server.time_out(client, request, now),
            Event::Replies(place) => self.reply(usize::from(place), now),
            Event::Clears => self.clear(now),
            Event::Reads(client, link) => self.read(client, link)?,
            Event::Notices(client, link) => {
                self.client(client).reconnect(link, present);
                if link == Link::Reader {
                    self.outdate_calls(client);
                }
            }
            Event::Asks(client, request) => self.client(client).acquire(request, present),
            Event::Withdraws(client, request) | Event::Releases(client, request) => {
                self.client(client).release(request);
            }
            Event::Calls(client) => {
                let client = self.client(client);
                client.call(client.cursor, now);
            }
            Event::Dies(client) => {
                self.faults_left -= 1;
                let tick = self.awake_ticks();
                self.client(client).die(tick);
            }
        }
        if self.is_touched {
            self.settle(now);
        }
        self.refresh();
        self.check()
    }
}

fn answers(told: Told) -> ToClient {
    let Told {
        cursor,
        waited_ms,
        answers,
    } = told;
    ToClient::Answers {
        cursor,
        waited_ms,
        answers,
    }
}

/// All that future events depend on.
impl Hash for Inboxes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tick, self.faults_left, self.pauses_left, self.c).hash(state);
        self.canonical.hash(state, &(&self.clients, &self.calls));
    }
}

impl What {
    fn of(message: ToServer) -> Self {
        match message {
            ToServer::Acquire { request, .. } => Self::Acquire(request),
            ToServer::Release { request, .. } => Self::Release(request),
            ToServer::ReleaseForeign { .. } => Self::ReleaseForeign,
            ToServer::Grants { cursor } => Self::Grants(cursor == 0),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(request) => write!(f, "ACQUIRE {request}"),
            Self::Release(request) => write!(f, "RELEASE {request}"),
            Self::ReleaseForeign => write!(f, "RELEASE for another client"),
            Self::Grants(true) => write!(f, "GRANTS 0"),
            Self::Grants(false) => write!(f, "GRANTS"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: &ClientId| ["A", "B"][usize::from(*client)];
        match self {
            Self::Tick => write!(f, "-- tick --"),
            Self::PausedTick => write!(f, "-- tick, clients paused --"),
            Self::XReleases => write!(f, "X releases"),
            Self::CAsks => write!(f, "C: BLOCK"),
            Self::CReleases => write!(f, "C releases"),
            Self::FailOver => write!(f, "failover"),
            Self::Arrives(client, _, what) => write!(f, "server: {what} of {}", name(client)),
            Self::ArrivesLate(client, _, what) => write!(f, "server, late: {what} of {}", name(client)),
            Self::Cut(client, link) => write!(f, "{link} of {} is lost", name(client)),
            Self::LosesReader(_) => write!(f, "server notices that a reader is gone"),
            Self::TimesOut(client, request) => write!(f, "{request} of {} times out", name(client)),
            Self::Replies(_) => write!(f, "server replies to a call"),
            Self::Clears => write!(f, "server clears an ended inbox"),
            Self::Reads(client, Link::Requests) => write!(f, "{} reads", name(client)),
            Self::Reads(client, Link::Reader) => write!(f, "reader of {} reads", name(client)),
            Self::Notices(client, link) => write!(f, "{} notices: {link} lost", name(client)),
            Self::Asks(client, request) => write!(f, "{} asks for {request}", name(client)),
            Self::Withdraws(client, request) => write!(f, "{} withdraws {request}", name(client)),
            Self::Releases(client, request) => write!(f, "{} releases {request}", name(client)),
            Self::Calls(client) => write!(f, "{} calls", name(client)),
            Self::Dies(client) => write!(f, "{} is killed", name(client)),
        }
    }
}
