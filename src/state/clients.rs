//! Clients that are blocked, by their tickets and by the server's names for them.

use std::collections::BTreeMap;

use dlock_core::{Answer, LockName, LockNameRef, Parked, Ticket};

use crate::redis::{BlockedClient, BlockedId};

#[derive(Default)]
pub struct Clients {
    by_ticket: BTreeMap<Ticket, (BlockedClient<Client>, Box<Client>)>,
    by_id: BTreeMap<BlockedId, Ticket>,
    /// Unblocked ids, removed from `by_id` lazily to keep grants short. The server may reuse them at the next block.
    unblocked: Vec<BlockedId>,
    /// Grants with a request id that are on their way to clients, or are to be rolled back. Should a client be gone, the
    /// owner may still want its grant, ask for it again by the request id, and get it elsewhere.
    in_flight: BTreeMap<RequestKey, Ticket>,
}

/// A blocked client in its box, which travels with the reply.
pub struct Client {
    pub request: Parked,
    /// The reply, when there is one.
    pub reply: Option<Reply>,
}

/// The reply to a blocked client.
pub enum Reply {
    Answer(Answer),
    /// An error of the server's own kind, MOVED for instance.
    Error(String),
}

/// A request id is unique for an owner and a lock: name, owner, request id.
type RequestKey = (LockName, Box<[u8]>, Box<[u8]>);

/// A grant that did not reach its client.
pub struct UndeliveredGrant {
    pub client: Client,
    pub fence: u64,
}

impl Client {
    fn request_key(&self) -> Option<RequestKey> {
        let Parked { name, owner, .. } = &self.request;
        let request_id = self.request.request_id.clone()?;
        Some((name.clone(), owner.as_ref().into(), request_id))
    }
}

impl Clients {
    pub fn insert(&mut self, blocked: BlockedClient<Client>, client: Box<Client>) {
        for id in self.unblocked.drain(..) {
            self.by_id.remove(&id);
        }
        self.by_id.insert(blocked.id(), client.request.ticket);
        self.by_ticket.insert(client.request.ticket, (blocked, client));
    }

    /// Whoever takes a client out must unblock it.
    pub fn take(&mut self, ticket: Ticket) -> Option<(BlockedClient<Client>, Box<Client>)> {
        let (blocked, client) = self.by_ticket.remove(&ticket)?;
        self.unblocked.push(blocked.id());
        Some((blocked, client))
    }

    pub fn take_by_id(&mut self, id: BlockedId) -> Option<(BlockedClient<Client>, Box<Client>)> {
        let ticket = self.by_id.get(&id).copied()?;
        self.take(ticket)
    }

    /// A reply with a grant is on its way.
    pub fn send(&mut self, client: &Client) {
        if let Some(key) = client.request_key() {
            self.in_flight.insert(key, client.request.ticket);
        }
    }

    /// A client has the hold of this request id, whatever becomes of other clients that asked for it. Called after the
    /// transition, which may have granted it to one of them, and before the server can find that client gone.
    pub fn mark_delivered(&mut self, name: LockNameRef<'_>, owner: &[u8], request_id: &[u8]) {
        if !self.in_flight.is_empty() {
            let key = (name.to_name(), owner.into(), request_id.into());
            self.in_flight.remove(&key);
        }
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
        let is_unclaimed = self.in_flight.get(&key) == Some(&client.request.ticket);
        if is_unclaimed {
            self.in_flight.remove(&key);
        }
        is_unclaimed
    }
}
