//! Who is served, and whether everybody is, by the queues of all servers together.
//!
//! Each server has a FIFO queue, of which the first holds the server. A client sends its request to all servers, and has
//! the lock when it holds a majority. With the doorway, its requests arrive before those of the next client; without,
//! in any order. Who holds less than a majority for too long gives up all its places, and passes the doorway again.

use std::fmt;

use crate::search::World;

const MAX_SERVERS: usize = 5;

/// By server. There is nothing at those that are down, or do not exist.
type Everywhere<T> = [T; MAX_SERVERS];

#[derive(Clone, Hash)]
pub struct Queues {
    clients: Vec<Client>,
    /// The first of each holds the server.
    queues: Everywhere<Vec<usize>>,
    /// The clients, as they asked.
    order: Vec<usize>,
    setting: QueueSetting,
}

/// What can happen, and which rule is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueSetting {
    /// How many are up, at most five. Four are what is left of five.
    pub servers: usize,
    /// The first has the lock, the others are about to ask for it.
    pub clients: usize,
    /// Whether the requests of a client arrive before those of the next one.
    pub has_doorway: bool,
    /// Whether requests arrive before those who wait for them time out, and before anybody releases.
    pub awaits_replies: bool,
    /// How often a client dies, or a server loses its holder.
    pub faults: u8,
    /// How often a server forgets its queue.
    pub restarts: u8,
    pub breach: Option<QueueBreach>,
}

#[derive(Clone, Copy, Hash)]
struct Client {
    state: State,
    /// Whether it waits for those that are in the doorway before it asks.
    has_doorway: bool,
    /// Whether it awaits replies, and has given up its places since a client had the lock.
    has_given_up: bool,
    /// Where its request has not arrived.
    on_its_way: Everywhere<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Waiting,
    HasLock,
    /// Its requests and holds have not ended yet.
    Dead,
    Gone,
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueBreach {
    /// A client keeps what it was granted, even if that is no majority for long.
    GrantsKept,
    /// A client that gives back what it was granted keeps its places in the other queues.
    PlacesKept,
    /// A client does not ask a server again that has forgotten its request.
    NotAskedAgain,
}

/// A broken guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueViolation {
    /// A client has the lock before one that asked earlier.
    Overtaken,
    /// A client has given up its places twice, and nobody got the lock.
    NobodyServed,
}

#[derive(Clone, Copy, Debug)]
pub enum Event {
    Arrives {
        client: usize,
        server: usize,
    },
    Releases {
        client: usize,
    },
    /// It holds something, which is no majority, gives up all its places, and asks for them again.
    GivesUp {
        client: usize,
    },
    Dies {
        client: usize,
    },
    /// The leases and the requests of a dead client end.
    Ends {
        client: usize,
    },
    /// The server loses its holder: by DEL, for instance.
    LosesHolder {
        server: usize,
    },
    /// The server restarts and has forgotten its queue.
    LosesQueue {
        server: usize,
    },
}

impl QueueSetting {
    fn everywhere(&self) -> Everywhere<bool> {
        std::array::from_fn(|server| server < self.servers)
    }

    fn majority(&self) -> usize {
        self.servers / 2 + 1
    }
}

impl Queues {
    pub fn new(setting: QueueSetting) -> Self {
        let waiting = Client {
            state: State::Waiting,
            has_doorway: setting.has_doorway,
            has_given_up: false,
            on_its_way: setting.everywhere(),
        };
        let mut world = Self {
            clients: vec![waiting; setting.clients],
            queues: setting
                .everywhere()
                .map(|is_up| if is_up { vec![0] } else { vec![] }),
            order: (0..setting.clients).collect(),
            setting,
        };
        world.clients[0] = Client {
            state: State::HasLock,
            on_its_way: [false; MAX_SERVERS],
            ..waiting
        };
        world
    }

    fn held_by(&self, client: usize) -> Everywhere<bool> {
        std::array::from_fn(|server| self.queues[server].first() == Some(&client))
    }

    fn has_majority(&self, client: usize) -> bool {
        self.held_by(client).iter().filter(|holds| **holds).count() >= self.setting.majority()
    }

    /// The clients that asked before this one.
    fn before(&self, client: usize) -> impl Iterator<Item = &Client> {
        let others = self.order.iter().take_while(move |other| **other != client);
        others.map(|other| &self.clients[*other])
    }

    /// Whether a client has not asked any server yet, and an earlier one is still asking.
    fn is_behind_doorway(&self, client: usize) -> bool {
        let is_inside = |other: &Client| other.state == State::Waiting && other.on_its_way.contains(&true);
        let asks = self.clients[client];
        asks.has_doorway
            && asks.on_its_way == self.setting.everywhere()
            && self
                .before(client)
                .any(|other| other.has_doorway && is_inside(other))
    }

    fn leave(&mut self, client: usize) {
        self.queues
            .iter_mut()
            .for_each(|queue| queue.retain(|other| *other != client));
        self.clients[client].on_its_way = [false; MAX_SERVERS];
    }

    fn give_up(&mut self, client: usize) -> Result<(), QueueViolation> {
        let has_lock = |client: &Client| client.state == State::HasLock;
        if self.setting.awaits_replies && !self.clients.iter().any(has_lock) {
            let gave_up_before = std::mem::replace(&mut self.clients[client].has_given_up, true);
            if gave_up_before {
                return Err(QueueViolation::NobodyServed);
            }
        }
        if self.setting.breach == Some(QueueBreach::PlacesKept) {
            let held = self.held_by(client);
            for (server, _) in held.iter().enumerate().filter(|(_, holds)| **holds) {
                self.queues[server].remove(0);
                self.clients[client].on_its_way[server] = true;
            }
        } else {
            self.leave(client);
            self.order.retain(|other| *other != client);
            self.order.push(client);
            self.clients[client].has_doorway = true;
            self.clients[client].on_its_way = self.setting.everywhere();
        }
        Ok(())
    }

    /// Those that wait ask again.
    fn forget(&mut self, server: usize, forgotten: &[usize]) {
        for client in forgotten {
            let client = &mut self.clients[*client];
            if client.state == State::Waiting && self.setting.breach != Some(QueueBreach::NotAskedAgain) {
                client.on_its_way[server] = true;
            }
        }
    }

    /// Whoever has a majority now has the lock; who has lost it is gone.
    fn settle(&mut self) -> Result<(), QueueViolation> {
        for client in 0..self.clients.len() {
            match (self.clients[client].state, self.has_majority(client)) {
                (State::HasLock, false) => {
                    self.clients[client].state = State::Gone;
                    self.leave(client);
                    return self.settle();
                }
                (State::Waiting, true) => {
                    self.clients[client].state = State::HasLock;
                    self.clients[client].on_its_way = [false; MAX_SERVERS];
                    self.clients
                        .iter_mut()
                        .for_each(|client| client.has_given_up = false);
                    let waits = |earlier: &Client| earlier.state == State::Waiting;
                    if self.setting.has_doorway && self.before(client).any(waits) {
                        return Err(QueueViolation::Overtaken);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn can_give_up(&self, client: usize) -> bool {
        self.held_by(client).contains(&true)
            && self.setting.breach != Some(QueueBreach::GrantsKept)
            && !(self.setting.awaits_replies && self.is_asking(client))
    }

    fn can_release(&self) -> bool {
        !(self.setting.awaits_replies && (0..self.clients.len()).any(|client| self.is_asking(client)))
    }

    fn is_asking(&self, client: usize) -> bool {
        self.clients[client].on_its_way.contains(&true)
    }

    /// Whether all have been served.
    pub fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.state == State::Gone)
    }

    fn client_events(&self, client: usize, events: &mut Vec<Event>) {
        match self.clients[client].state {
            State::Waiting => {
                let on_its_way = self.clients[client].on_its_way;
                if !self.is_behind_doorway(client) {
                    let servers = (0..self.setting.servers).filter(|server| on_its_way[*server]);
                    events.extend(servers.map(|server| Event::Arrives { client, server }));
                }
                if self.can_give_up(client) {
                    events.push(Event::GivesUp { client });
                }
            }
            State::HasLock if self.can_release() => events.push(Event::Releases { client }),
            State::Dead => events.push(Event::Ends { client }),
            State::HasLock | State::Gone => {}
        }
        if self.setting.faults > 0 && matches!(self.clients[client].state, State::Waiting | State::HasLock) {
            events.push(Event::Dies { client });
        }
    }
}

impl Event {
    /// Whether it need not happen.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Dies { .. } | Self::LosesHolder { .. } | Self::LosesQueue { .. }
        )
    }
}

impl World for Queues {
    type Event = Event;
    type Violation = QueueViolation;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for client in 0..self.clients.len() {
            self.client_events(client, &mut events);
        }
        for server in 0..self.setting.servers {
            if self.setting.faults > 0 {
                events.push(Event::LosesHolder { server });
            }
            if self.setting.restarts > 0 {
                events.push(Event::LosesQueue { server });
            }
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), QueueViolation> {
        match event {
            Event::Arrives { client, server } => {
                self.clients[client].on_its_way[server] = false;
                self.queues[server].push(client);
            }
            Event::Releases { client } | Event::Ends { client } => {
                self.clients[client].state = State::Gone;
                self.leave(client);
            }
            Event::GivesUp { client } => self.give_up(client)?,
            Event::Dies { client } => {
                self.setting.faults -= 1;
                self.clients[client].state = State::Dead;
                self.clients[client].on_its_way = [false; MAX_SERVERS];
            }
            Event::LosesHolder { server } => {
                self.setting.faults -= 1;
                let lost: Vec<usize> = self.queues[server]
                    .drain(..1.min(self.queues[server].len()))
                    .collect();
                self.forget(server, &lost);
            }
            Event::LosesQueue { server } => {
                self.setting.restarts -= 1;
                let lost = std::mem::take(&mut self.queues[server]);
                self.forget(server, &lost);
            }
        }
        self.settle()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrives { client, server } => write!(f, "{client} arrives at {server}"),
            Self::Releases { client } => write!(f, "{client} releases"),
            Self::GivesUp { client } => write!(f, "{client} gives up its places"),
            Self::Dies { client } => write!(f, "{client} dies"),
            Self::Ends { client } => write!(f, "leases of {client} end"),
            Self::LosesHolder { server } => write!(f, "{server} loses its holder"),
            Self::LosesQueue { server } => write!(f, "{server} loses its queue"),
        }
    }
}
