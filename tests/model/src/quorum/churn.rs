//! Who is served while a holder has lost the first server, but not its majority.
//!
//! Each server has a FIFO queue. A client waits at its first server, then at the others as well, and has the lock when
//! it holds a majority. In the beginning a client has the lock without the first of the configured servers, and all
//! others wait.

use std::fmt;

use super::{MAJORITY, SERVERS};
use crate::search::World;

/// The clients that wait, by arrival, each with the server that it takes for the first.
#[derive(Clone, Hash)]
pub struct Churn {
    firsts: Vec<usize>,
    breach: Option<ChurnBreach>,
    /// The queues. The first of each holds the server.
    queues: [Vec<usize>; SERVERS],
    has_lock: Option<usize>,
    done: Vec<bool>,
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChurnBreach {
    /// A client that holds the first configured server gives it back when the others let it wait.
    FirstGivenBack,
    /// A client that holds another server first keeps that.
    OthersKept,
}

/// A broken guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtaken {
    /// A client has the lock before one that arrived earlier.
    ByLaterClient,
    /// The remaining clients wait for each other.
    Deadlock,
}

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// It releases the lock.
    Release { client: usize },
    /// It waits elsewhere for longer than the node timeout: it gives all back and starts over.
    GiveUp { client: usize },
}

impl Churn {
    pub fn new(firsts: &[usize], breach: Option<ChurnBreach>) -> Self {
        let holder = firsts.len();
        let mut world = Self {
            firsts: firsts.to_vec(),
            breach,
            queues: [vec![], vec![holder], vec![holder]],
            has_lock: Some(holder),
            done: vec![false; firsts.len()],
        };
        for (client, first) in firsts.iter().enumerate() {
            world.queues[*first].push(client);
        }
        world.ask_others();
        world
    }

    /// Those that hold their first server wait at the others too.
    fn ask_others(&mut self) {
        for client in 0..self.firsts.len() {
            if !self.done[client] && self.holds(client, self.firsts[client]) {
                for queue in self.queues.iter_mut().filter(|queue| !queue.contains(&client)) {
                    queue.push(client);
                }
            }
        }
    }

    fn holds(&self, client: usize, server: usize) -> bool {
        self.queues[server].first() == Some(&client)
    }

    fn leave(&mut self, client: usize) {
        self.queues
            .iter_mut()
            .for_each(|queue| queue.retain(|other| *other != client));
    }

    fn is_waiting_elsewhere(&self, client: usize) -> bool {
        self.has_lock != Some(client) && self.holds(client, self.firsts[client])
    }

    /// Whoever has a majority now has the lock.
    fn settle(&mut self) -> Result<(), Overtaken> {
        self.ask_others();
        let majority =
            |client: &usize| (0..SERVERS).filter(|server| self.holds(*client, *server)).count() >= MAJORITY;
        let Some(client) = (0..self.firsts.len())
            .find(majority)
            .filter(|_| self.has_lock.is_none())
        else {
            let is_over = self.done.iter().all(|done| *done);
            return if self.events().is_empty() && !is_over {
                Err(Overtaken::Deadlock)
            } else {
                Ok(())
            };
        };
        self.has_lock = Some(client);
        let is_same_queue = |other: usize| self.firsts[other] == self.firsts[client];
        let is_earlier = |other: usize| other < client && !self.done[other] && is_same_queue(other);
        if (0..client).any(is_earlier) {
            return Err(Overtaken::ByLaterClient);
        }
        Ok(())
    }
}

impl World for Churn {
    type Event = Event;
    type Violation = Overtaken;

    fn events(&self) -> Vec<Event> {
        let release = self.has_lock.map(|client| Event::Release { client });
        let gives_up = |client: &usize| {
            let may_give_up = if self.firsts[*client] == 0 {
                self.breach == Some(ChurnBreach::FirstGivenBack)
            } else {
                self.breach != Some(ChurnBreach::OthersKept)
            };
            may_give_up && self.is_waiting_elsewhere(*client)
        };
        let give_ups = (0..self.firsts.len()).filter(gives_up);
        release
            .into_iter()
            .chain(give_ups.map(|client| Event::GiveUp { client }))
            .collect()
    }

    fn happen(&mut self, event: Event) -> Result<(), Overtaken> {
        match event {
            Event::Release { client } => {
                self.has_lock = None;
                self.leave(client);
                if let Some(done) = self.done.get_mut(client) {
                    *done = true;
                }
            }
            Event::GiveUp { client } => {
                self.leave(client);
                self.queues[self.firsts[client]].push(client);
            }
        }
        self.settle()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { client } => write!(f, "{client} releases"),
            Self::GiveUp { client } => write!(f, "{client} gives up"),
        }
    }
}
