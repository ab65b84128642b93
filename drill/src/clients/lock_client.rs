//! A client that records every request with its reply.

use std::time::Duration;

use redis::{RedisResult, Value};

use super::wire::{command_args, no_reply, parse_reply};
use crate::history::{Acquire, Op, Push, Recorder, Reply, Request, ServerTerm, Wait, now};

/// A migrating slot may bounce a request between two nodes.
const MAX_REDIRECTIONS: u32 = 5;

/// Where a client finds the server of a lock. A clone is for another client.
pub trait Route: Clone {
    type Link: Link;

    /// A connection for requests about this lock. `None` if its server does not accept one.
    fn open(&self, key: &str) -> Option<Self::Link>;

    /// Whether requests about this lock still belong on this connection.
    fn leads_over(&self, key: &str, link: &Self::Link) -> bool;

    /// If the reply redirects a request: the connection that it names, if its server accepts one.
    fn follow(&self, _key: &str, _reply: &Reply) -> Option<Option<Self::Link>> {
        None
    }
}

/// A connection to a server.
pub trait Link {
    /// The server that replies.
    fn server(&self) -> ServerTerm;

    /// Sends a command and reads the reply, which may be an error reply.
    fn call(&mut self, words: &[String], timeout: Duration) -> RedisResult<Value>;
}

/// A client with one connection at a time.
pub struct LockClient<R: Route> {
    pub owner: String,
    route: R,
    recorder: Recorder,
    reply_timeout: Duration,
    link: Option<R::Link>,
}

impl<R: Route> LockClient<R> {
    /// `reply_timeout` is added to the BLOCK time of a request.
    pub fn new(owner: String, route: R, recorder: Recorder, reply_timeout: Duration) -> Self {
        Self {
            owner,
            route,
            recorder,
            reply_timeout,
            link: None,
        }
    }

    pub fn route(&self) -> &R {
        &self.route
    }

    /// The same owner on another connection.
    pub fn with_new_connection(&self) -> Self {
        let (route, recorder) = (self.route.clone(), self.recorder.clone());
        Self::new(self.owner.clone(), route, recorder, self.reply_timeout)
    }

    /// DLOCK.ACQUIRE. `None` if the server does not accept connections.
    pub fn acquire(&mut self, key: &str, acquire: Acquire) -> Option<Op> {
        self.request(key, Request::Acquire(acquire))
    }

    /// DLOCK.EXTEND. `None` if the server does not accept connections.
    pub fn extend(&mut self, key: &str, lease_ms: u64, fence: Option<u64>) -> Option<Op> {
        self.request(key, Request::Extend { lease_ms, fence })
    }

    /// DLOCK.RELEASE. `None` if the server does not accept connections.
    pub fn release(&mut self, key: &str, fence: Option<u64>, all: bool, reqid: Option<String>) -> Option<Op> {
        self.request(key, Request::Release { fence, all, reqid })
    }

    /// RPUSH, plain or by DLOCK.GUARD. `None` if the server does not accept connections.
    pub fn push(&mut self, key: &str, push: Push) -> Option<Op> {
        self.request(key, Request::Push(push))
    }

    /// Sends a request and follows redirections. Each attempt is recorded.
    fn request(&mut self, key: &str, request: Request) -> Option<Op> {
        self.connect(key)?;
        let mut op = self.exchange(key, &request)?;
        for _ in 0..MAX_REDIRECTIONS {
            let Some(link) = self.route.follow(key, &op.reply) else {
                break;
            };
            self.link = Some(link?);
            op = self.exchange(key, &request)?;
        }
        Some(op)
    }

    fn exchange(&mut self, key: &str, request: &Request) -> Option<Op> {
        let timeout = self.reply_timeout_for(request);
        let link = self.link.as_mut()?;
        let server = link.server();
        let command = command_args(key, &self.owner, request);
        let sent = now();
        let reply = match link.call(&command, timeout) {
            Ok(value) => parse_reply(request, value),
            Err(error) => no_reply(&error),
        };
        let replied = now();
        if reply.is_unknown() || matches!(reply, Reply::Unexpected(_)) {
            self.link = None;
        }
        let op = Op {
            owner: self.owner.clone(),
            key: key.to_owned(),
            server,
            request: request.clone(),
            sent,
            replied,
            reply,
        };
        self.recorder.op(op.clone());
        Some(op)
    }

    fn reply_timeout_for(&self, request: &Request) -> Duration {
        match request {
            Request::Acquire(Acquire {
                wait: Wait::Block { timeout_ms },
                ..
            }) => self.reply_timeout + Duration::from_millis(*timeout_ms),
            _ => self.reply_timeout,
        }
    }

    /// Connects to the server of the lock unless it is connected already.
    fn connect(&mut self, key: &str) -> Option<()> {
        let route = &self.route;
        self.link.take_if(|link| !route.leads_over(key, link));
        if self.link.is_none() {
            self.link = self.route.open(key);
            // While this connected, a server may have started at this address in a new term.
            let route = &self.route;
            self.link.take_if(|link| !route.leads_over(key, link));
        }
        self.link.as_ref().map(|_| ())
    }
}
