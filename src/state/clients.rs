//! Clients that are blocked, by their tickets and by the server's names for them.

use std::collections::BTreeMap;
use std::ffi::c_int;

use dlock_core::{Acquire, Answer, Enqueued, LockName, Ticket};

use crate::redis::{BlockedClient, BlockedId};

pub struct Clients {
    by_ticket: BTreeMap<Ticket, (BlockedClient<Client>, Box<Client>)>,
    by_id: BTreeMap<BlockedId, Ticket>,
    /// Clients that wait no more. They are removed from `by_id` before the next client waits, which may have the same
    /// id: a waiter that is granted should not have to wait for that.
    pending_cleanup: Vec<BlockedId>,
    /// Grants with a request id that are on their way to clients, or are to be rolled back. Should a client be gone, the
    /// owner may still want its grant, ask for it again by the request id, and get it elsewhere.
    in_flight: BTreeMap<RequestKey, Ticket>,
    /// Clients, by the server's number, that it may have unblocked without the reply that they had.
    pub stranded_clients: Vec<u64>,
}

/// A blocked client in its box, which travels with the reply.
pub struct Client {
    pub ticket: Ticket,
    pub name: LockName,
    pub owner: Box<[u8]>,
    pub request_id: Option<Box<[u8]>>,
    /// The reply, when there is one.
    pub reply: Option<Reply>,
}

/// The reply to a blocked client.
pub enum Reply {
    Answer(Answer),
    /// An error of the server's own kind, MOVED for instance.
    Error(String),
}

/// A request id is unique for an owner and a lock.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey {
    name: LockName,
    owner: Box<[u8]>,
    request_id: Box<[u8]>,
}

/// A grant that did not reach its client.
pub struct UndeliveredGrant {
    pub client: Client,
    pub fence: u64,
}

impl Client {
    pub fn new(waiter: &Enqueued, request: &Acquire<'_>) -> Self {
        Self {
            ticket: waiter.ticket,
            name: waiter.name.clone(),
            owner: request.owner.into(),
            request_id: request.request_id.map(Into::into),
            reply: None,
        }
    }

    fn request_key(&self) -> Option<RequestKey> {
        self.request_id.as_ref().map(|request_id| RequestKey {
            name: self.name.clone(),
            owner: self.owner.clone(),
            request_id: request_id.clone(),
        })
    }
}

impl Clients {
    pub const fn new() -> Self {
        Self {
            by_ticket: BTreeMap::new(),
            by_id: BTreeMap::new(),
            pending_cleanup: Vec::new(),
            in_flight: BTreeMap::new(),
            stranded_clients: Vec::new(),
        }
    }

    pub fn insert(&mut self, blocked: BlockedClient<Client>, client: Box<Client>) {
        for id in self.pending_cleanup.drain(..) {
            self.by_id.remove(&id);
        }
        self.by_id.insert(blocked.id(), client.ticket);
        self.by_ticket.insert(client.ticket, (blocked, client));
    }

    /// Whoever takes a client out must unblock it.
    pub fn take(&mut self, ticket: Ticket) -> Option<(BlockedClient<Client>, Box<Client>)> {
        let (blocked, client) = self.by_ticket.remove(&ticket)?;
        self.pending_cleanup.push(blocked.id());
        Some((blocked, client))
    }

    pub fn take_by_id(&mut self, id: BlockedId) -> Option<(BlockedClient<Client>, Box<Client>)> {
        let ticket = self.by_id.get(&id).copied()?;
        self.take(ticket)
    }

    /// A reply with a grant is on its way.
    pub fn send(&mut self, client: &Client) {
        if let Some(key) = client.request_key() {
            self.in_flight.insert(key, client.ticket);
        }
    }

    /// The owner of a grant has asked for it again and has it.
    pub fn mark_delivered(&mut self, db: c_int, key: &[u8], owner: &[u8], request_id: &[u8]) {
        self.in_flight.remove(&RequestKey {
            name: LockName::new(db, key),
            owner: owner.into(),
            request_id: request_id.into(),
        });
    }

    pub fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The server is done with a reply that granted: the grant, if its client is gone.
    pub fn finish(&mut self, client: Client, is_gone: bool) -> Option<UndeliveredGrant> {
        // A client that was replaced had the ticket of the one which took its place.
        let Some(Reply::Answer(Answer::Granted(granted))) = &client.reply else {
            return None;
        };
        if is_gone {
            let fence = granted.fence;
            return Some(UndeliveredGrant { client, fence });
        }
        self.claim(&client);
        None
    }

    /// Whether no other client got the grant of this one. From now on none can.
    pub fn claim(&mut self, client: &Client) -> bool {
        let Some(key) = client.request_key() else {
            return true;
        };
        let is_unclaimed = self.in_flight.get(&key) == Some(&client.ticket);
        if is_unclaimed {
            self.in_flight.remove(&key);
        }
        is_unclaimed
    }
}
