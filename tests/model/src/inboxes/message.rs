//! What clients and server send each other.

use std::fmt;

/// Milliseconds since the beginning of the world. Not a `u64`: see [`super::names`].
pub type Ms = u32;

/// The two connections of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    Requests,
    Reader,
}

/// What a connection carries. What was sent before it was lost may still arrive, or not.
#[derive(Clone, Hash)]
pub struct Connection {
    pub is_up: bool,
    pub to_server: Vec<ToServer>,
    pub to_client: Vec<ToClient>,
}

/// Which sending of a request a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sending {
    /// The last one, which is the first one.
    First,
    /// The last one, and not the first one.
    Repeat,
    /// Not the last one.
    Superseded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToServer {
    /// ACQUIRE with QUEUE and REQID, sent at that time.
    Acquire { request: u8, sending: Sending, at: Ms },
    /// RELEASE with REQID, of a request of its own.
    Release { request: u8, sending: Sending },
    /// ... of a grant of somebody else in its inbox. The reply tells nothing.
    ReleaseForeign { client: u8, request: u8 },
    /// GRANTS with this cursor, and with BLOCK unless it is 0.
    Grants { cursor: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToClient {
    /// The request that was sent at that time holds the lock.
    Granted {
        request: u8,
        lease_ms: Ms,
        at: Ms,
    },
    Queued {
        request: u8,
        sending: Sending,
    },
    /// To ACQUIRE.
    NoInbox {
        request: u8,
        sending: Sending,
    },
    Released {
        request: u8,
        sending: Sending,
    },
    Answers {
        cursor: u64,
        waited_ms: Ms,
        answers: Vec<Answer>,
    },
    /// To GRANTS.
    NoInboxOrOldCursor,
    Busy,
    Unblocked,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    pub client: u8,
    pub request: u8,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Granted {
        lease_ms: Ms,
        queued_ms: Ms,
    },
    /// It timed out or was withdrawn.
    Ended,
    /// It was sent again with another inbox.
    Replaced,
}

impl Connection {
    pub fn new() -> Self {
        Self {
            is_up: true,
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    pub fn lost() -> Self {
        Self {
            is_up: false,
            ..Self::new()
        }
    }

    /// The client does not know that it is lost.
    pub fn send(&mut self, message: ToServer) {
        if self.is_up {
            self.to_server.push(message);
        }
    }

    /// What is under way of this ACQUIRE is not its last sending any more, or no reply to it.
    pub fn supersede_acquire(&mut self, of: u8) {
        for message in &mut self.to_server {
            if let ToServer::Acquire { request, sending, .. } = message
                && *request == of
            {
                *sending = Sending::Superseded;
            }
        }
        for message in &mut self.to_client {
            if let ToClient::Queued { request, sending } | ToClient::NoInbox { request, sending } = message
                && *request == of
            {
                *sending = Sending::Superseded;
            }
        }
    }

    pub fn supersede_release(&mut self, of: u8) {
        for message in &mut self.to_server {
            if let ToServer::Release { request, sending } = message
                && *request == of
            {
                *sending = Sending::Superseded;
            }
        }
        for message in &mut self.to_client {
            if let ToClient::Released { request, sending } = message
                && *request == of
            {
                *sending = Sending::Superseded;
            }
        }
    }
}

impl ToServer {
    /// As it arrives late: nobody is there for the reply.
    pub fn without_reply(self) -> Self {
        let sending = Sending::Superseded;
        match self {
            Self::Acquire { request, .. } => Self::Acquire {
                request,
                sending,
                at: 0,
            },
            Self::Release { request, .. } => Self::Release { request, sending },
            Self::ReleaseForeign { .. } | Self::Grants { .. } => self,
        }
    }

    pub fn link(self) -> Link {
        match self {
            Self::Acquire { .. } | Self::Release { .. } | Self::ReleaseForeign { .. } => Link::Requests,
            Self::Grants { .. } => Link::Reader,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "connection",
            Self::Reader => "reader's connection",
        })
    }
}
