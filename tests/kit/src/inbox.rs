use redis::Value;

use crate::client::Client;
use crate::server::Server;
use crate::wait::wait_for;
use crate::waiter::{Waiter, error_text};

/// Long enough for any machine.
const OPEN: &str = "TTL 60000";

/// The reader of an inbox, on a connection of its own. It calls DLOCK.GRANTS with the cursor of the last reply.
pub struct Inbox {
    name: String,
    cursor: u64,
    connection: Waiter,
}

/// The reply to DLOCK.GRANTS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub cursor: u64,
    pub waited_ms: u64,
    pub answers: Vec<Answer>,
}

/// How a queued request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub id: String,
    pub key: String,
    pub owner: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(AnswerGrant),
    Timeout,
    Withdrawn,
    /// The whole error.
    Error(String),
}

/// A grant that was delivered through an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerGrant {
    pub fence: u64,
    pub holds: u64,
    /// What remained when the answer was delivered.
    pub lease_ms: u64,
    pub queued_ms: u64,
}

impl Inbox {
    /// Makes an inbox that lasts for a minute without a reader.
    #[track_caller]
    pub fn make(server: &Server, name: &str) -> Self {
        Self::make_with(server, name, OPEN)
    }

    /// Makes an inbox with these options of DLOCK.GRANTS.
    #[track_caller]
    pub fn make_with(server: &Server, name: &str, options: &str) -> Self {
        let mut inbox = Self {
            name: name.to_owned(),
            cursor: 0,
            connection: Waiter::connect(server),
        };
        let made = inbox.call(options);
        assert_eq!(made.answers, [], "a new inbox is empty");
        inbox
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cursor of the last reply.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Sends DLOCK.GRANTS with the cursor of the last reply.
    #[track_caller]
    pub fn send(&mut self, options: &str) {
        self.send_at(self.cursor, options);
    }

    /// Sends DLOCK.GRANTS with another cursor.
    #[track_caller]
    pub fn send_at(&mut self, cursor: u64, options: &str) {
        let command = format!("DLOCK.GRANTS {} {cursor} {options}", self.name);
        self.connection.send(&command);
    }

    /// Sends a call that blocks for up to a minute, and waits until it does.
    #[track_caller]
    pub fn block(&mut self, client: &mut Client) {
        let list = format!("CLIENT LIST ID {}", self.connection.id());
        self.send("BLOCK 60000");
        wait_for("a blocked reader", || {
            assert!(self.connection.is_silent(), "replied at once");
            client.ask::<String>(&list).contains("flags=b")
        });
    }

    /// The reply to the call that was sent.
    #[track_caller]
    pub fn receive(&mut self) -> Delivery {
        let delivery = Delivery::parse(&self.connection.next_reply());
        self.cursor = delivery.cursor;
        delivery
    }

    /// Sends DLOCK.GRANTS with the cursor of the last reply, and reads the reply.
    #[track_caller]
    pub fn call(&mut self, options: &str) -> Delivery {
        self.send(options);
        self.receive()
    }

    /// As [`Inbox::call`], with another cursor. The next call has the cursor of this reply.
    #[track_caller]
    pub fn call_at(&mut self, cursor: u64, options: &str) -> Delivery {
        self.send_at(cursor, options);
        self.receive()
    }

    /// Receives exactly this many answers, in one or more replies.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            answers.extend(self.call("BLOCK 60000").answers);
        }
        assert_eq!(answers.len(), count, "{answers:?}");
        answers
    }

    /// Receives one answer, which must be a grant.
    #[track_caller]
    pub fn granted(&mut self) -> AnswerGrant {
        self.take(1)[0].grant()
    }

    /// Acknowledges what was received. Nothing else may have been delivered.
    #[track_caller]
    pub fn assert_empty(&mut self) {
        assert_eq!(self.call("").answers, []);
    }

    /// The error to a call with the cursor of the last reply.
    #[track_caller]
    pub fn error(&mut self, options: &str) -> String {
        self.error_at(self.cursor, options)
    }

    /// The error to a call with another cursor.
    #[track_caller]
    pub fn error_at(&mut self, cursor: u64, options: &str) -> String {
        self.send_at(cursor, options);
        self.receive_error()
    }

    /// The error to the call that was sent.
    #[track_caller]
    pub fn receive_error(&mut self) -> String {
        match self.connection.next_reply() {
            Value::ServerError(error) => error_text(&error),
            other => panic!("not an error: {other:?}"),
        }
    }

    /// The reply to the call that was sent: the answers, an error, or `None` when the server closed the connection.
    #[track_caller]
    pub fn try_receive(&mut self) -> Option<Result<Delivery, String>> {
        Some(match self.connection.read()? {
            Value::ServerError(error) => Err(error_text(&error)),
            reply => {
                let delivery = Delivery::parse(&reply);
                self.cursor = delivery.cursor;
                Ok(delivery)
            }
        })
    }

    /// The reader's connection.
    pub fn connection(&mut self) -> &mut Waiter {
        &mut self.connection
    }

    /// Goes on over another connection, as a reader does whose connection was lost.
    #[track_caller]
    pub fn reconnect(&mut self, server: &Server) {
        self.connection = Waiter::connect(server);
    }
}

impl Delivery {
    #[track_caller]
    pub fn parse(reply: &Value) -> Self {
        let (cursor, waited_ms, answers): (u64, u64, Vec<Vec<Value>>) =
            redis::from_redis_value_ref(reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"));
        Self {
            cursor,
            waited_ms,
            answers: answers.iter().map(|fields| Answer::parse(fields)).collect(),
        }
    }
}

impl Answer {
    #[track_caller]
    fn parse(fields: &[Value]) -> Self {
        let text = |at: usize| match &fields[at] {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::SimpleString(text) => text.clone(),
            other => panic!("field {at} is not a string: {other:?}"),
        };
        let number = |at: usize| match &fields[at] {
            Value::Int(number) => number.unsigned_abs(),
            other => panic!("field {at} is not an integer: {other:?}"),
        };
        let outcome = match (text(0).as_str(), fields.len()) {
            ("granted", 8) => Outcome::Granted(AnswerGrant {
                fence: number(4),
                holds: number(5),
                lease_ms: number(6),
                queued_ms: number(7),
            }),
            ("timeout", 4) => Outcome::Timeout,
            ("withdrawn", 4) => Outcome::Withdrawn,
            ("error", 5) => Outcome::Error(text(4)),
            _ => panic!("an unknown answer: {fields:?}"),
        };
        Self {
            id: text(1),
            key: text(2),
            owner: text(3),
            outcome,
        }
    }

    /// The grant that it must be.
    #[track_caller]
    pub fn grant(&self) -> AnswerGrant {
        match self.outcome {
            Outcome::Granted(grant) => grant,
            _ => panic!("not granted: {self:?}"),
        }
    }

    /// The error that it must be.
    #[track_caller]
    pub fn error(&self) -> &str {
        match &self.outcome {
            Outcome::Error(error) => error,
            _ => panic!("not an error: {self:?}"),
        }
    }

    /// Its words up to the owner, then the code of an error: `granted r1 door bob`, `error r1 door bob MOVED`.
    pub fn shown(&self) -> String {
        let (kind, code) = match &self.outcome {
            Outcome::Granted(_) => ("granted", None),
            Outcome::Timeout => ("timeout", None),
            Outcome::Withdrawn => ("withdrawn", None),
            Outcome::Error(error) => ("error", error.split(' ').next()),
        };
        let words = [kind, &self.id, &self.key, &self.owner].into_iter().chain(code);
        words.collect::<Vec<_>>().join(" ")
    }
}

impl Client {
    /// `DLOCK.ACQUIRE` with QUEUE that must be queued: how many wait before it.
    #[track_caller]
    pub fn enqueue(&mut self, args: &str) -> u64 {
        let [before] = self.ask(&format!("DLOCK.ACQUIRE {args}"));
        before
    }

    /// Waits until the server has this many inboxes.
    #[track_caller]
    pub fn wait_for_inboxes(&mut self, count: i64) {
        wait_for(&format!("{count} inboxes"), || {
            self.stat("dlock_inboxes") == count
        });
    }
}
