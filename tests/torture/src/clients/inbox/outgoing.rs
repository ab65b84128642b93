//! The requests of a process: each is recorded before it is sent to the server that has its key.

use std::collections::HashMap;
use std::sync::mpsc::Sender;

use dlock_drill::clients::command_args;

use super::journal::Journal;
use super::node::{Command, Event, InboxTimes, Node, NodeAddress};
use crate::history::{Op, ServerTerm};

pub struct Outgoing {
    inbox: String,
    times: InboxTimes,
    events: Sender<Event>,
    nodes: Vec<Node>,
    /// Ports by key, from redirections of a cluster.
    moved: HashMap<String, u16>,
    pub journal: Journal,
    /// Recorded, but not sent yet.
    outbox: Vec<(u16, Command)>,
    last_number: u64,
}

impl Outgoing {
    pub fn new(inbox: String, times: InboxTimes, events: Sender<Event>) -> Self {
        Self {
            inbox,
            times,
            events,
            nodes: Vec::new(),
            moved: HashMap::new(),
            journal: Journal::default(),
            outbox: Vec::new(),
            last_number: 0,
        }
    }

    /// The servers now. The first one has all keys that no redirection has told about.
    pub fn set_nodes(&mut self, addresses: &[NodeAddress]) {
        // What is recorded as sent to a server goes to that one.
        self.flush();
        let mut old = std::mem::take(&mut self.nodes);
        for address in addresses {
            let known = old.iter().position(|node| node.address == *address);
            self.nodes.push(match known {
                Some(n) => old.swap_remove(n),
                None => Node::open(*address, &self.inbox, self.times, &self.events),
            });
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn record_moved(&mut self, key: &str, port: u16) {
        self.moved.insert(key.to_owned(), port);
    }

    /// The port of the server that has the key, as far as is known.
    pub fn port_of(&self, key: &str) -> u16 {
        let port = self.moved.get(key).copied().unwrap_or(0);
        self.server(port).port
    }

    /// The server with this port, or the first one.
    pub fn server(&self, port: u16) -> ServerTerm {
        self.node(port).address.server
    }

    fn node(&self, port: u16) -> &Node {
        let known = self.nodes.iter().find(|node| node.address.server.port == port);
        known.unwrap_or(&self.nodes[0])
    }

    /// Records a request, and sends it with the next [`Self::flush`]. Its number comes back with the reply.
    pub fn send(&mut self, op: &Op, asking: bool) -> u64 {
        self.last_number += 1;
        self.journal.sent(self.last_number, op);
        let command = Command {
            number: self.last_number,
            args: command_args(&op.key, &op.owner, &op.request),
            asking,
        };
        self.outbox.push((op.server.port, command));
        self.last_number
    }

    pub fn flush(&mut self) {
        self.journal.flush();
        for (port, command) in std::mem::take(&mut self.outbox) {
            self.node(port).send(command);
        }
    }

    /// Records a request that is not sent, with its reply.
    pub fn record(&mut self, op: &Op) {
        self.last_number += 1;
        self.journal.sent(self.last_number, op);
        self.journal
            .replied(self.last_number, op.sent, op.replied, &op.reply);
    }
}
