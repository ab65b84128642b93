//! A client that waits for many locks over two connections to each server, as the documentation tells authors of
//! clients to.
//!
//! It sends a request again until its last sending has a reply, and all that wait when an inbox had to be made. It
//! releases what it is granted but does not expect.

use std::collections::{BTreeMap, HashMap};

use dlock_drill::clients::{no_reply, parse_reply};

use super::answer::{Answer, possible};
use super::node::{Event, NodeAddress, PAUSE, Received};
use super::outgoing::Outgoing;
use crate::clients::route::redirection;
use crate::history::{Acquire, Call, Limit, Micros, Op, Reply, Request, ServerTerm, Wait, now};

const NOT_HELD: [&str; 3] = ["NOTHELD", "NOTOWNER", "STALE"];

/// A mistake of a client, to show that it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// What waits is not sent again when the inbox had ended.
    NothingRepeated,
    /// The whole lease is taken to begin with the reply of GRANTS, although it began with the grant.
    WholeLease,
}

pub struct InboxClient {
    name: String,
    inbox: String,
    lease_ms: u64,
    mistake: Mistake,
    outgoing: Outgoing,
    /// Requests that wait, hold or release, oldest first.
    requests: BTreeMap<u64, Open>,
    /// The requests of the numbers under which they were sent, until there is a reply.
    sendings: HashMap<u64, (u64, Op)>,
    last_id: u64,
    /// To be sent again, with the number under which they were sent last.
    later: Vec<(Micros, u64, u64)>,
}

/// A request that is in the table before it is sent: its answer may overtake the reply.
struct Open {
    owner: String,
    key: String,
    acquire: Acquire,
    stage: Stage,
    /// How often ACQUIRE was sent.
    sendings: u32,
    /// The number of the last sending of any kind, and of ACQUIRE, and where it was sent.
    last: u64,
    last_acquire: u64,
    port: u16,
    is_queued: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Held { fence: u64 },
    Releasing { fence: Option<u64> },
}

/// What became of a request.
pub enum Outcome {
    Granted {
        id: u64,
        deadline: Micros,
    },
    /// Not granted, or released.
    Ended(u64),
}

impl InboxClient {
    /// `name` is unique among processes, and so is `inbox`.
    pub fn new(name: &str, inbox: &str, lease_ms: u64, mistake: Mistake, outgoing: Outgoing) -> Self {
        Self {
            name: name.to_owned(),
            inbox: inbox.to_owned(),
            lease_ms,
            mistake,
            outgoing,
            requests: BTreeMap::new(),
            sendings: HashMap::new(),
            last_id: 0,
            later: Vec::new(),
        }
    }

    /// The servers from now on. What waits is sent again as soon as their inboxes have been made.
    pub fn set_nodes(&mut self, addresses: &[NodeAddress]) {
        self.outgoing.set_nodes(addresses);
    }

    /// Acquires a lock, and waits for at most `timeout_ms`; 0: without a limit.
    pub fn acquire(&mut self, key: &str, limit: Limit, timeout_ms: u64) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let acquire = Acquire {
            lease_ms: self.lease_ms,
            limit,
            wait: Wait::Queue {
                inbox: self.inbox.clone(),
                timeout_ms,
            },
            reqid: Some(format!("r{id}")),
        };
        let owner = format!("{}.{id}", self.name);
        self.requests.insert(id, Open::new(owner, key, acquire));
        self.send(id);
        id
    }

    /// Sends a request again. It keeps its place.
    pub fn repeat(&mut self, id: u64) {
        self.send(id);
    }

    /// Gives up a request, or releases its lock.
    pub fn release(&mut self, id: u64) {
        let Some(open) = self.requests.get_mut(&id) else {
            return;
        };
        let fence = match open.stage {
            Stage::Waiting => None,
            Stage::Held { fence } => Some(fence),
            Stage::Releasing { .. } => return,
        };
        open.stage = Stage::Releasing { fence };
        self.send(id);
    }

    pub fn is_waiting(&self, id: u64) -> bool {
        let open = self.requests.get(&id);
        open.is_some_and(|open| open.stage == Stage::Waiting)
    }

    /// Forgets a lock whose lease has ended.
    pub fn forget(&mut self, id: u64) {
        self.requests.remove(&id);
    }

    /// Whether nothing waits, holds or releases.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Records what has no answer.
    pub fn record_forgotten(&mut self) {
        for open in self.requests.values() {
            self.outgoing.journal.forgotten(open.last);
        }
        self.outgoing.flush();
    }

    /// Handles a reply or an answer.
    pub fn handle(&mut self, event: Event) -> Vec<Outcome> {
        match event {
            Event::Replied {
                number,
                sent,
                replied,
                result,
            } => self.on_reply(number, sent, replied, result).into_iter().collect(),
            Event::Received(received) => self.on_received(received),
            Event::Unexpected(from, what) => {
                self.record_unexpected(from.server, what);
                Vec::new()
            }
            Event::Line(_) | Event::Ended => Vec::new(),
        }
    }

    /// Sends what is due, after recording it. To be called after everything else.
    pub fn flush(&mut self) {
        let now = now();
        for (at, id, number) in std::mem::take(&mut self.later) {
            if at > now {
                self.later.push((at, id, number));
            } else if self.requests.get(&id).is_some_and(|open| open.last == number) {
                self.send(id);
            }
        }
        self.outgoing.flush();
        for node in self.outgoing.nodes() {
            let port = node.address.server.port;
            node.set_waited_for(self.requests.values().any(|open| self.waits_at(port, open)));
        }
    }

    /// Whether a request waits at a server, or will.
    fn waits_at(&self, port: u16, open: &Open) -> bool {
        open.stage == Stage::Waiting && (open.port == port || self.outgoing.port_of(&open.key) == port)
    }

    /// Sends a request, or sends it again, to where its key is.
    fn send(&mut self, id: u64) {
        if let Some(open) = self.requests.get(&id) {
            self.send_to(self.outgoing.port_of(&open.key), id, false);
        }
    }

    fn send_to(&mut self, port: u16, id: u64, asking: bool) {
        let Some(open) = self.requests.get_mut(&id) else {
            return;
        };
        let request = match open.stage {
            Stage::Waiting => Request::Acquire(open.acquire.clone()),
            Stage::Held { .. } => return,
            Stage::Releasing { fence } => Request::Release {
                fence,
                all: false,
                reqid: open.acquire.reqid.clone(),
            },
        };
        let op = Op {
            owner: open.owner.clone(),
            key: open.key.clone(),
            server: self.outgoing.server(port),
            request,
            sent: now(),
            replied: 0,
            reply: Reply::Disconnected,
        };
        open.last = self.outgoing.send(&op, asking);
        if open.stage == Stage::Waiting {
            open.last_acquire = open.last;
            open.sendings += 1;
            open.is_queued = false;
        }
        open.port = op.server.port;
        self.sendings.insert(open.last, (id, op));
    }

    fn send_later(&mut self, id: u64) {
        if let Some(open) = self.requests.get(&id) {
            let due = now() + PAUSE.as_micros() as Micros;
            self.later.push((due, id, open.last));
        }
    }

    fn on_reply(
        &mut self,
        number: u64,
        sent: Micros,
        replied: Micros,
        result: redis::RedisResult<redis::Value>,
    ) -> Option<Outcome> {
        let (id, op) = self.sendings.remove(&number)?;
        let reply = match result {
            Ok(value) => possible(parse_reply(&op.request, value)),
            Err(error) => no_reply(&error),
        };
        self.outgoing.journal.replied(number, sent, replied, &reply);
        let op = Op {
            sent,
            replied,
            reply,
            ..op
        };
        let open = self.requests.get_mut(&id)?;
        // The reply to an earlier sending does not tell what becomes of the last one.
        if open.last != number {
            return None;
        }
        match (open.stage, &op.reply) {
            (Stage::Held { .. }, _) => None,
            (_, reply) if reply.is_unknown() => {
                self.send(id);
                None
            }
            (Stage::Waiting, Reply::Granted { fence, .. }) => {
                let fence = *fence;
                self.on_granted(id, fence, op.safe_deadline())
            }
            (Stage::Waiting, Reply::Queued(_)) => {
                open.is_queued = true;
                None
            }
            // As soon as the inbox has been made.
            (Stage::Waiting, reply) if reply.is_error(&["NOINBOX"]) => None,
            (Stage::Releasing { fence: Some(_) }, reply) if reply.is_error(&NOT_HELD) => self.on_not_held(id),
            (Stage::Releasing { .. }, Reply::Remaining(_)) => self.end(id),
            (_, reply) => self.on_error(id, &reply.clone()),
        }
    }

    /// Released, or lost. A late copy of the request may have left a hold or a waiter.
    fn on_not_held(&mut self, id: u64) -> Option<Outcome> {
        let open = self.requests.get_mut(&id)?;
        if open.sendings <= 1 {
            return self.end(id);
        }
        open.stage = Stage::Releasing { fence: None };
        self.send(id);
        None
    }

    fn on_granted(&mut self, id: u64, fence: u64, deadline: Micros) -> Option<Outcome> {
        let open = self.requests.get_mut(&id)?;
        open.stage = Stage::Held { fence };
        if now() >= deadline {
            self.release(id);
            return None;
        }
        Some(Outcome::Granted { id, deadline })
    }

    /// An error about a request that waits or releases, in a reply or an answer.
    fn on_error(&mut self, id: u64, reply: &Reply) -> Option<Outcome> {
        if let Some((is_moved, port)) = redirection(reply) {
            if is_moved {
                let open = self.requests.get(&id)?;
                self.outgoing.record_moved(&open.key, port);
            }
            self.send_to(port, id, !is_moved);
            return None;
        }
        if reply.is_error(&NOT_HELD) || !matches!(reply, Reply::Error(_)) {
            return self.end_without_grant(id);
        }
        self.send_later(id);
        None
    }

    /// A request that was sent more than once may have left another waiter, or a hold.
    fn end_without_grant(&mut self, id: u64) -> Option<Outcome> {
        let open = self.requests.get_mut(&id)?;
        let is_waiting = open.stage == Stage::Waiting;
        if is_waiting && open.sendings > 1 {
            self.release(id);
            return None;
        }
        self.end(id)
    }

    fn end(&mut self, id: u64) -> Option<Outcome> {
        self.requests.remove(&id).map(|_| Outcome::Ended(id))
    }

    fn on_received(&mut self, received: Received) -> Vec<Outcome> {
        // Of an inbox that is not read any more. What it tells is asked again at the new server.
        let nodes = self.outgoing.nodes();
        if nodes.iter().all(|node| node.address != received.from) {
            return Vec::new();
        }
        let owners = received.answers.iter().filter_map(|answer| answer.get(3));
        let call = Call {
            process: self.name.clone(),
            server: received.from.server,
            sent: received.sent,
            replied: received.replied,
            made: received.made,
            answered: owners.cloned().collect(),
        };
        self.outgoing.journal.call(&call);
        let answers = received.answers.iter();
        let outcomes: Vec<_> = answers
            .filter_map(|answer| self.on_answer(&call, received.waited_ms, answer))
            .collect();
        if received.made {
            self.repeat_all(received.from.server.port);
        }
        outcomes
    }

    /// The inbox was made: what waited through an earlier one waits no more.
    fn repeat_all(&mut self, port: u16) {
        let skips_queued = self.mistake == Mistake::NothingRepeated;
        let waiting = self
            .requests
            .iter()
            .filter(|(_, open)| self.waits_at(port, open) && !(skips_queued && open.is_queued));
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.send(id));
    }

    fn on_answer(&mut self, call: &Call, waited_ms: u64, answer: &[String]) -> Option<Outcome> {
        let Some(answer) = Answer::parse(answer, &self.name, waited_ms) else {
            self.record_unexpected(call.server, format!("{answer:?}"));
            return None;
        };
        let id = answer.id;
        match (self.requests.get(&id).map(|open| open.stage), &answer.reply) {
            (Some(Stage::Waiting), Some(_)) => self.settle(call, answer),
            // Only what it gives up is withdrawn.
            (Some(Stage::Waiting), None) => {
                self.record_unexpected(call.server, format!("withdrawn: {}", answer.owner));
                self.end(id)
            }
            // It releases already, but perhaps a late copy of the request was granted after that.
            (Some(Stage::Releasing { .. }), Some(Reply::Granted { .. })) => {
                self.send(id);
                None
            }
            (None, Some(Reply::Granted { .. })) => {
                self.release_unknown(answer);
                None
            }
            // Known already.
            _ => None,
        }
    }

    /// The answer to a request that waits for it.
    fn settle(&mut self, call: &Call, answer: Answer) -> Option<Outcome> {
        let (id, reply) = (answer.id, answer.reply?);
        let open = self.requests.get(&id)?;
        self.outgoing.journal.answer(open.last_acquire, call, &reply);
        let op = Op {
            owner: open.owner.clone(),
            key: open.key.clone(),
            server: call.server,
            request: Request::Answer(open.acquire.clone()),
            sent: call.sent,
            replied: call.replied,
            reply,
        };
        match op.reply {
            Reply::Granted { fence, waited_ms, .. } if self.mistake == Mistake::WholeLease => {
                let deadline = self.record_whole_lease(op, fence, waited_ms);
                self.on_granted(id, fence, deadline)
            }
            Reply::Granted { fence, .. } => self.on_granted(id, fence, op.safe_deadline()),
            Reply::Error(_) => self.on_error(id, &op.reply),
            _ => self.end_without_grant(id),
        }
    }

    /// Records what the client believes, as if the server had extended the lease then.
    fn record_whole_lease(&mut self, grant: Op, fence: u64, waited_ms: u64) -> Micros {
        let extend = Op {
            request: Request::Extend {
                lease_ms: self.lease_ms,
                fence: Some(fence),
            },
            sent: grant.sent + waited_ms * 1_000,
            reply: Reply::Lease(self.lease_ms),
            ..grant
        };
        self.outgoing.record(&extend);
        extend.safe_deadline()
    }

    /// A grant that nobody waits for and nobody holds.
    fn release_unknown(&mut self, answer: Answer) {
        let acquire = Acquire {
            lease_ms: self.lease_ms,
            limit: Limit::Shared,
            wait: Wait::No,
            reqid: Some(answer.reqid),
        };
        let mut open = Open::new(answer.owner, &answer.key, acquire);
        open.stage = Stage::Releasing { fence: None };
        self.requests.insert(answer.id, open);
        self.send(answer.id);
    }

    fn record_unexpected(&mut self, server: ServerTerm, what: String) {
        let now = now();
        let op = Op {
            owner: self.name.clone(),
            key: "inbox".into(),
            server,
            request: Request::Release {
                fence: None,
                all: false,
                reqid: Some(self.inbox.clone()),
            },
            sent: now,
            replied: now,
            reply: Reply::Unexpected(what),
        };
        self.outgoing.record(&op);
    }
}

impl Open {
    fn new(owner: String, key: &str, acquire: Acquire) -> Self {
        Self {
            owner,
            key: key.to_owned(),
            acquire,
            stage: Stage::Waiting,
            sendings: 0,
            last: 0,
            last_acquire: 0,
            port: 0,
            is_queued: false,
        }
    }
}
