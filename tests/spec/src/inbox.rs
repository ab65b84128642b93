//! The inbox of the specification, and the core.

use std::collections::BTreeMap;

use dlock_core::testing::{self, Answer, Server};
use dlock_core::{Answered, Caller, Error, Grants, Queue, Received};

use crate::trace::{Data, Difference, LEASE_MS, Trace, ask};

const TTL_MS: u64 = 1_000;
const TTL_MICROS: i64 = 1_000_000;
const PASSES: usize = 5;
const PASS_MICROS: i64 = 10_000;
const INBOX: &[u8] = b"inbox";
/// Who sends all requests of the process.
const PROCESS: Caller<'_> = Caller { db: 0, user: b"" };
/// Asks on a connection, not through the inbox.
const OTHER: &str = "x";
const OTHER_CLIENT: testing::Client = 1;

/// What reaches the server in a step.
#[derive(Clone, Debug)]
pub enum Event {
    Acquire(String),
    Release(String),
    /// With this cursor of the specification.
    Grants(i64),
    InboxEnds,
    /// A message that is late, or something that only the process knows of.
    Nothing,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reply: Reply,
    /// "" for none.
    pub holder: String,
    pub queue: Vec<String>,
    pub has_inbox: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted,
    Queued,
    Released,
    NoInbox,
    /// The requests that were granted.
    Answers(Vec<String>),
}

/// Replays a trace. `code` does a step, and is told the cursor of the reply in the specification.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Event, Option<i64>) -> Seen) -> Result<(), Difference> {
    trace.replay(|state| {
        let last = state.var("last");
        let (reply, cursor) = Reply::specified(last.get("reply"));
        let server = state.var("server");
        let specified = Seen {
            reply,
            holder: server.get("holder").text().to_owned(),
            queue: server
                .get("queue")
                .list()
                .map(|it| it.text().to_owned())
                .collect(),
            has_inbox: server.get("inboxes").list().next().is_some(),
        };
        (code(&Event::of(last), cursor), specified)
    })
}

impl Event {
    fn of(last: Data<'_>) -> Self {
        let (name, fate) = (last.get("name").text(), last.get("fate").text());
        let request = last.get("request").text().to_owned();
        // A copy that arrives names what it is instead.
        let what = if name == "arrives" { fate } else { name };
        match what {
            _ if fate == "late" => Self::Nothing,
            "giveUp" => Self::Nothing,
            "acquire" => Self::Acquire(request),
            "release" => Self::Release(request),
            "grants" => Self::Grants(last.get("cursor").int()),
            "inboxEnds" => Self::InboxEnds,
            other => panic!("an unknown action: {other}"),
        }
    }
}

impl Reply {
    fn specified(reply: Data<'_>) -> (Self, Option<i64>) {
        let (tag, value) = reply.variant();
        match tag {
            "Granted" => (Self::Granted, None),
            "Queued" => (Self::Queued, None),
            "Released" => (Self::Released, None),
            "NoInbox" => (Self::NoInbox, None),
            "Answers" => {
                let answers = value.get("answers").list().map(|it| it.text().to_owned());
                (Self::Answers(answers.collect()), Some(value.get("cursor").int()))
            }
            _ => panic!("an unknown reply: {tag}"),
        }
    }
}

/// The core as the server of one lock and one inbox.
pub struct Core {
    server: Server,
    /// The cursors of the core by those of the specification, which numbers replies, not answers.
    cursors: BTreeMap<i64, u64>,
}

impl Core {
    #[allow(clippy::new_without_default, reason = "it is no plain value")]
    pub fn new() -> Self {
        let mut server = Server::with(&["lock"]);
        server.set_policy(|policy| policy.detect_deadlocks = false);
        Self {
            server,
            cursors: BTreeMap::from([(0, 0)]),
        }
    }

    pub fn step(&mut self, event: &Event, cursor: Option<i64>) -> Seen {
        let reply = match event {
            Event::Acquire(request) => self.acquire(request),
            Event::Release(request) => self.release(request),
            Event::Grants(with) => self.grants(*with, cursor),
            Event::InboxEnds => {
                self.end_inbox();
                Reply::Released
            }
            Event::Nothing => Reply::Released,
        };
        let name = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
        let holders = self.server.stored(0);
        let queue = self
            .server
            .state()
            .wait_table
            .queue(self.server.names[0].as_ref());
        let waiters = queue.into_iter().flat_map(Queue::iter);
        Seen {
            reply,
            holder: holders
                .first()
                .map(|(holder, _)| name(holder.owner()))
                .unwrap_or_default(),
            queue: waiters.map(|(_, waiter)| name(waiter.owner())).collect(),
            has_inbox: self.server.state().inboxes.find(INBOX).is_some(),
        }
    }

    fn acquire(&mut self, request: &str) -> Reply {
        let (wait, client) = match request {
            OTHER => ("BLOCK", OTHER_CLIENT),
            _ => ("QUEUE inbox", 0),
        };
        let acquire = format!("ACQUIRE {request} {LEASE_MS} {wait} 0 REQID {request}");
        match ask(&mut self.server, client, &acquire) {
            Some(Ok(Answer::Granted(_))) => Reply::Granted,
            Some(Ok(Answer::Queued(_))) | None => Reply::Queued,
            Some(Err(Error::NoInbox)) => Reply::NoInbox,
            other => panic!("{request}: {other:?}"),
        }
    }

    fn release(&mut self, request: &str) -> Reply {
        match ask(&mut self.server, 0, &format!("RELEASE {request} REQID {request}")) {
            Some(Ok(Answer::Holds(_))) => Reply::Released,
            other => panic!("{request}: {other:?}"),
        }
    }

    fn grants(&mut self, cursor: i64, replied: Option<i64>) -> Reply {
        let request = Grants {
            inbox: INBOX,
            cursor: self.cursors[&cursor],
            block_ms: None,
            ttl_ms: Some(TTL_MS),
        };
        match self.server.grants(&request, PROCESS) {
            Ok(Received::Replied { reply, .. }) => {
                self.cursors.extend(replied.map(|it| (it, reply.cursor)));
                let granted =
                    |answered: &&Answered| matches!(answered.answer, dlock_core::Answer::Granted(_));
                let owner = |answered: &Answered| String::from_utf8_lossy(&answered.owner).into_owned();
                Reply::Answers(reply.answers.iter().filter(granted).map(owner).collect())
            }
            Err(Error::NoInbox) => Reply::NoInbox,
            other => panic!("{other:?}"),
        }
    }

    /// Nobody calls for a TTL: its requests leave, and what no reply has carried is given up.
    fn end_inbox(&mut self) {
        self.server.pass(TTL_MICROS);
        // It outlives its TTL by some passes of the server's loop, in which a call may still arrive.
        for _ in 0..PASSES {
            self.process();
            self.server.pass(PASS_MICROS);
        }
    }

    fn process(&mut self) {
        assert_eq!(self.server.run_due(), [], "nobody calls");
    }
}
