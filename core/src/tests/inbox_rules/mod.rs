//! The contract of waiting through inboxes by example.
//!
//! ```text
//! answers   what becomes of requests that wait, and how long answers stay
//! readers   calls of GRANTS: who reads an inbox, and what wakes it
//! requests  QUEUE: repeated, withdrawn and rejected requests
//! ends      what an inbox leaves, and when it ends
//! ```

mod answers;
mod ends;
mod readers;
mod requests;

use crate::effects::Answer;
use crate::engine::{Host, answering};
use crate::inbox::{Answered, GrantsReply, Received, Reply};
use crate::names::Call;
use crate::testing::{self, Server, inputs_at};
use crate::wire::{Caller, Error, Granted, Grants};

/// Who sends all requests, unless the test says otherwise.
const SELF: Caller<'_> = Caller { db: 0, user: b"" };

/// A server where alice holds `a` and `b`, with the inbox `inbox`, and the cursor of its first reply.
fn held() -> (Server, u64) {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 60000 REQID r0");
    server.granted("ACQUIRE b alice 60000 REQID r0");
    let cursor = server.grants("inbox 0 TTL 1000").cursor;
    (server, cursor)
}

/// As [`held`]. Bob and carol wait for `a`, in this order.
fn queued() -> (Server, u64) {
    let (mut server, cursor) = held();
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    server.queued("ACQUIRE a carol 60000 QUEUE inbox 0 REQID r2");
    (server, cursor)
}

impl Server {
    /// Sends a request that is queued for an inbox. Returns how many wait before it.
    #[track_caller]
    fn queued(&mut self, command: &str) -> usize {
        match self.call(command) {
            Ok(testing::Answer::Queued(ahead)) => ahead,
            reply => panic!("{reply:?} to {command}"),
        }
    }

    #[track_caller]
    fn released(&mut self, command: &str) {
        assert!(self.call(command).is_ok(), "{command}");
    }

    /// Sends a GRANTS with these arguments. Returns its reply.
    #[track_caller]
    fn grants(&mut self, args: &str) -> GrantsReply {
        match self.grants_from(SELF, args) {
            Ok(Received::Replied { reply, former: None }) => reply,
            other => panic!("{other:?} to {args}"),
        }
    }

    /// Sends a GRANTS that waits.
    #[track_caller]
    fn grants_waits(&mut self, args: &str) -> Call {
        match self.grants_from(SELF, args) {
            Ok(Received::Waits { call, former: None }) => call,
            other => panic!("{other:?} to {args}"),
        }
    }

    /// Sends a GRANTS that is rejected.
    #[track_caller]
    fn grants_error(&mut self, args: &str) -> Error {
        self.grants_from(SELF, args).expect_err("it is rejected")
    }

    fn grants_from(&mut self, caller: Caller<'_>, args: &str) -> Result<Received, Error> {
        let (inbox, options) = args.split_once(' ').expect("a cursor");
        let request = Grants::parse(inbox.as_bytes(), options.split(' ').map(str::as_bytes))?;
        let inputs = inputs_at(self.clock().now);
        let received = self.state_mut().receive(&request, caller, &inputs);
        if let Ok(Received::Waits { call, .. }) = received {
            self.host.block(call);
            self.host.take_parked();
        }
        received
    }

    /// The reply to a call that waited.
    #[track_caller]
    fn reply_to(&mut self, call: Call) -> GrantsReply {
        match self.replies_to(call) {
            Some(Reply::Grants(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn replies_to(&mut self, call: Call) -> Option<Reply> {
        answering::reply(&mut self.host, call)
    }

    /// Time passes until `inbox` would have ended without a call.
    fn outlast_ttl(&mut self) {
        self.pass(1_000_000);
        for _ in 0..5 {
            self.run_due();
            self.pass(10_000);
        }
    }

    /// What the next call of `inbox` gets, as [`shown`].
    #[track_caller]
    fn next_answers(&mut self, cursor: u64) -> Vec<String> {
        shown(&self.grants(&format!("inbox {cursor}")))
    }

    fn has_inbox(&self, name: &str) -> bool {
        self.state().inboxes.find(name.as_bytes()).is_some()
    }
}

/// What the answers say: `granted r1 a bob`.
fn shown(reply: &GrantsReply) -> Vec<String> {
    reply.answers.iter().map(show).collect()
}

fn show(answered: &Answered) -> String {
    let word = match &answered.answer {
        Answer::Granted(_) => "granted",
        Answer::Extended(_) => "extended",
        Answer::TimedOut => "timeout",
        Answer::Withdrawn => "withdrawn",
        Answer::Rejected(error) => error.code(),
        Answer::Elsewhere(error) => error,
    };
    let id = answered.request_id.as_deref().unwrap_or_default();
    let [id, key, owner] = [id, &answered.name.key, &answered.owner].map(String::from_utf8_lossy);
    format!("{word} {id} {key} {owner}")
}

/// The grant that is the only answer.
#[track_caller]
fn only_grant(reply: &GrantsReply) -> Granted {
    match reply.answers.as_slice() {
        [
            Answered {
                answer: Answer::Granted(granted),
                ..
            },
        ] => *granted,
        answers => panic!("{answers:?}"),
    }
}
