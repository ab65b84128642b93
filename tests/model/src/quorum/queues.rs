//! Who is served, and whether everybody is, by the queues of all servers together.
//!
//! Each server has a FIFO queue, of which the first holds the server. A client sends its request to all servers, and has
//! the lock when it holds a majority. With the doorway, its requests arrive before those of the next client; without,
//! in any order.

use std::fmt;

use super::{MAJORITY, SERVERS};
use crate::search::World;

#[derive(Clone, Hash)]
pub struct Queues {
    clients: Vec<Client>,
    /// The first of each holds the server.
    queues: [Vec<usize>; SERVERS],
    setting: QueueSetting,
}

/// What can happen, and which rule is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueSetting {
    /// The first has the lock, the others are about to ask for it.
    pub clients: usize,
    /// Whether the requests of a client arrive before those of the next one.
    pub has_doorway: bool,
    /// How often a client dies, or a server loses its holder.
    pub faults: u8,
    /// How often a server forgets its queue.
    pub restarts: u8,
    pub breach: Option<QueueBreach>,
}

#[derive(Clone, Copy, Hash)]
struct Client {
    state: State,
    /// Where its request has not arrived.
    on_its_way: [bool; SERVERS],
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
    /// A client that gives back what it was granted leaves the other queues too.
    PlacesGivenUp,
    /// A client does not ask a server again that has forgotten its request.
    NotAskedAgain,
}

/// A broken guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtaken {
    /// A client has the lock before one that arrived earlier.
    ByLaterClient,
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
    /// It gives back what it holds, which is no majority, and asks for it again.
    GivesBack {
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

impl Default for QueueSetting {
    fn default() -> Self {
        Self {
            clients: 4,
            has_doorway: true,
            faults: 0,
            restarts: 0,
            breach: None,
        }
    }
}

impl Queues {
    pub fn new(setting: QueueSetting) -> Self {
        let waiting = Client {
            state: State::Waiting,
            on_its_way: [true; SERVERS],
        };
        let mut world = Self {
            clients: vec![waiting; setting.clients],
            queues: std::array::from_fn(|_| vec![0]),
            setting,
        };
        world.clients[0] = Client {
            state: State::HasLock,
            on_its_way: [false; SERVERS],
        };
        world
    }

    fn held_by(&self, client: usize) -> [bool; SERVERS] {
        std::array::from_fn(|server| self.queues[server].first() == Some(&client))
    }

    fn has_majority(&self, client: usize) -> bool {
        self.held_by(client).iter().filter(|holds| **holds).count() >= MAJORITY
    }

    /// Whether a client asks all servers for the first time, and an earlier one still does.
    fn is_behind_doorway(&self, client: usize) -> bool {
        let is_asking = |other: &Client| other.state == State::Waiting && other.on_its_way == [true; SERVERS];
        let is_inside = |other: &Client| other.state == State::Waiting && other.on_its_way.contains(&true);
        self.setting.has_doorway
            && is_asking(&self.clients[client])
            && self.clients[..client].iter().any(is_inside)
    }

    fn leave(&mut self, client: usize) {
        self.queues
            .iter_mut()
            .for_each(|queue| queue.retain(|other| *other != client));
        self.clients[client].on_its_way = [false; SERVERS];
    }

    fn give_back(&mut self, client: usize) {
        let mut given_back = self.held_by(client);
        if self.setting.breach == Some(QueueBreach::PlacesGivenUp) {
            given_back = [true; SERVERS];
        }
        for (server, _) in given_back.iter().enumerate().filter(|(_, is)| **is) {
            self.queues[server].retain(|other| *other != client);
            self.clients[client].on_its_way[server] = true;
        }
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
    fn settle(&mut self) -> Result<(), Overtaken> {
        for client in 0..self.clients.len() {
            match (self.clients[client].state, self.has_majority(client)) {
                (State::HasLock, false) => {
                    self.clients[client].state = State::Gone;
                    self.leave(client);
                    return self.settle();
                }
                (State::Waiting, true) => {
                    self.clients[client].state = State::HasLock;
                    self.clients[client].on_its_way = [false; SERVERS];
                    let waits = |earlier: &Client| earlier.state == State::Waiting;
                    if self.setting.has_doorway && self.clients[..client].iter().any(waits) {
                        return Err(Overtaken::ByLaterClient);
                    }
                }
                _ => {}
            }
        }
        Ok(())
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
                    let servers = (0..SERVERS).filter(|server| on_its_way[*server]);
                    events.extend(servers.map(|server| Event::Arrives { client, server }));
                }
                let holds_some = self.held_by(client).contains(&true);
                if holds_some && self.setting.breach != Some(QueueBreach::GrantsKept) {
                    events.push(Event::GivesBack { client });
                }
            }
            State::HasLock => events.push(Event::Releases { client }),
            State::Dead => events.push(Event::Ends { client }),
            State::Gone => {}
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
    type Violation = Overtaken;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for client in 0..self.clients.len() {
            self.client_events(client, &mut events);
        }
        for server in 0..SERVERS {
            if self.setting.faults > 0 {
                events.push(Event::LosesHolder { server });
            }
            if self.setting.restarts > 0 {
                events.push(Event::LosesQueue { server });
            }
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), Overtaken> {
        match event {
            Event::Arrives { client, server } => {
                self.clients[client].on_its_way[server] = false;
                self.queues[server].push(client);
            }
            Event::Releases { client } | Event::Ends { client } => {
                self.clients[client].state = State::Gone;
                self.leave(client);
            }
            Event::GivesBack { client } => self.give_back(client),
            Event::Dies { client } => {
                self.setting.faults -= 1;
                self.clients[client].state = State::Dead;
                self.clients[client].on_its_way = [false; SERVERS];
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
            Self::GivesBack { client } => write!(f, "{client} gives back"),
            Self::Dies { client } => write!(f, "{client} dies"),
            Self::Ends { client } => write!(f, "leases of {client} end"),
            Self::LosesHolder { server } => write!(f, "{server} loses its holder"),
            Self::LosesQueue { server } => write!(f, "{server} loses its queue"),
        }
    }
}
