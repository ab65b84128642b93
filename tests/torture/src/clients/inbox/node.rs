//! The two connections of a process to a server on which it waits: one for requests, one that reads its inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;
use std::{io, iter};

use dlock_testkit::{Connection, packed};
use redis::{RedisError, RedisResult, Value};

use crate::history::{Micros, ServerTerm, now};

/// Requests without a reply on a connection.
const MAX_UNANSWERED: usize = 1_000;
/// A healthy server replies much sooner.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Before something is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Where a server is reached: each connection has a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    pub server: ServerTerm,
    pub requests: u16,
    pub reader: u16,
}

/// The times of an inbox, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxTimes {
    /// Of a call of GRANTS. Shorter than the time to live.
    pub block: u64,
    /// Of the inbox, without a reader.
    pub ttl: u64,
    /// For how much longer than it blocks a call waits for its reply.
    pub patience: u64,
}

/// A request on its way to a server.
pub struct Command {
    pub number: u64,
    pub args: Vec<String>,
    /// Whether ASKING goes before it.
    pub asking: bool,
}

/// What a process waits for.
pub enum Event {
    Replied {
        number: u64,
        sent: Micros,
        replied: Micros,
        result: RedisResult<Value>,
    },
    Received(Received),
    /// The reader got a reply that it must never get.
    Unexpected(NodeAddress, String),
    /// A line of the standard input.
    Line(String),
    /// Its end.
    Ended,
}

/// A reply of GRANTS.
pub struct Received {
    pub from: NodeAddress,
    /// When the call was sent for the first time.
    pub sent: Micros,
    pub replied: Micros,
    /// Whether it made the inbox.
    pub made: bool,
    pub waited_ms: u64,
    pub answers: Vec<Vec<String>>,
}

/// The connections to a server. Dropped, they end; requests that were given to them still get replies.
pub struct Node {
    pub address: NodeAddress,
    commands: Sender<Command>,
    is_waited_for: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl Node {
    pub fn open(address: NodeAddress, inbox: &str, times: InboxTimes, events: &Sender<Event>) -> Self {
        let (commands, incoming) = mpsc::channel();
        let node = Self {
            address,
            commands,
            is_waited_for: Arc::default(),
            has_ended: Arc::default(),
        };
        thread::spawn({
            let events = events.clone();
            move || send_requests(address.requests, &incoming, &events)
        });
        let reader = Reader {
            address,
            inbox: inbox.to_owned(),
            times,
            cursor: 0,
            first_sent: None,
            connection: None,
            events: events.clone(),
        };
        let (is_waited_for, has_ended) = (node.is_waited_for.clone(), node.has_ended.clone());
        thread::spawn(move || reader.run(&is_waited_for, &has_ended));
        node
    }

    pub fn send(&self, command: Command) {
        // Its thread runs as long as this exists.
        let _ = self.commands.send(command);
    }

    /// Whether any request waits there. If not, the inbox is not read.
    pub fn set_waited_for(&self, is_waited_for: bool) {
        self.is_waited_for.store(is_waited_for, Ordering::Relaxed);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Sends what is there in one write, and reads the replies.
fn send_requests(port: u16, commands: &Receiver<Command>, events: &Sender<Event>) {
    let mut connection: Option<Connection> = None;
    while let Ok(first) = commands.recv() {
        let batch = iter::once(first).chain(commands.try_iter());
        let batch: Vec<Command> = batch.take(MAX_UNANSWERED).collect();
        let mut bytes = Vec::new();
        for command in &batch {
            if command.asking {
                bytes.extend(packed(&["ASKING"]));
            }
            bytes.extend(packed(&command.args));
        }
        connection = connection.or_else(|| Connection::open(port).ok());
        let sent = now();
        let mut failure = None;
        if let Some(open) = &mut connection
            && let Err(error) = open.check_silent().and_then(|()| Ok(open.send(&bytes)?))
        {
            (connection, failure) = (None, Some(error));
        }
        for command in batch {
            let result = match &mut connection {
                Some(open) => read(open, command.asking),
                None => Err(failure.take().unwrap_or_else(disconnected)),
            };
            if result.is_err() {
                connection = None;
            }
            let _ = events.send(Event::Replied {
                number: command.number,
                sent,
                replied: now(),
                result,
            });
        }
        if connection.is_none() {
            thread::sleep(PAUSE);
        }
    }
}

fn disconnected() -> RedisError {
    io::Error::from(io::ErrorKind::NotConnected).into()
}

fn read(connection: &mut Connection, asking: bool) -> RedisResult<Value> {
    if asking {
        connection.read(REPLY_TIMEOUT)?;
    }
    connection.read(REPLY_TIMEOUT)
}

/// Calls GRANTS, one call at a time, and the same one again until it has a reply.
struct Reader {
    address: NodeAddress,
    inbox: String,
    times: InboxTimes,
    cursor: u64,
    /// Of the call that has no reply yet.
    first_sent: Option<Micros>,
    connection: Option<Connection>,
    events: Sender<Event>,
}

impl Reader {
    fn run(mut self, is_waited_for: &AtomicBool, has_ended: &AtomicBool) {
        while !has_ended.load(Ordering::Relaxed) {
            if is_waited_for.load(Ordering::Relaxed) {
                self.call();
            } else {
                self.first_sent = None;
                thread::sleep(PAUSE / 4);
            }
        }
    }

    fn call(&mut self) {
        let sent = *self.first_sent.get_or_insert_with(now);
        let Self { times, cursor, .. } = *self;
        let args = format!(
            "DLOCK.GRANTS {} {cursor} BLOCK {} TTL {}",
            self.inbox, times.block, times.ttl
        );
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let timeout = Duration::from_millis(times.block + times.patience);
        if self.connection.is_none() {
            self.connection = Connection::open(self.address.reader).ok();
        }
        let reply = match &mut self.connection {
            Some(connection) => connection.call(&args, timeout),
            None => Err(disconnected()),
        };
        let replied = now();
        match reply {
            Ok(Value::ServerError(error)) if error.code() == "NOINBOX" => {
                (self.cursor, self.first_sent) = (0, None);
            }
            // What every server may reply that is not ready, and what an earlier call of this reader, which arrived
            // later, may do to this one.
            Ok(Value::ServerError(error))
                if ["UNBLOCKED", "READONLY", "LOADING", "MASTERDOWN"].contains(&error.code()) =>
            {
                thread::sleep(PAUSE);
            }
            Ok(value) => match parse_grants(&value) {
                Some((next, waited_ms, answers)) => {
                    let _ = self.events.send(Event::Received(Received {
                        from: self.address,
                        sent,
                        replied,
                        made: cursor == 0,
                        waited_ms,
                        answers,
                    }));
                    (self.cursor, self.first_sent) = (next, None);
                }
                None => self.report(format!("{value:?}")),
            },
            Err(error) if error.is_timeout() || error.is_io_error() => {
                self.connection = None;
                thread::sleep(PAUSE);
            }
            Err(error) => self.report(error.to_string()),
        }
    }

    fn report(&mut self, what: String) {
        let _ = self.events.send(Event::Unexpected(self.address, what));
        self.connection = None;
        thread::sleep(PAUSE);
    }
}

/// Parses `[cursor, waited-ms, [answer ...]]`.
fn parse_grants(value: &Value) -> Option<(u64, u64, Vec<Vec<String>>)> {
    let Value::Array(parts) = value else { return None };
    let [
        Value::Int(cursor @ 1..),
        Value::Int(waited_ms @ 0..),
        Value::Array(answers),
    ] = &parts[..]
    else {
        return None;
    };
    let answers: Option<Vec<Vec<String>>> = answers.iter().map(parse_answer).collect();
    Some((cursor.unsigned_abs(), waited_ms.unsigned_abs(), answers?))
}

/// The strings and integers of an answer.
fn parse_answer(answer: &Value) -> Option<Vec<String>> {
    let Value::Array(words) = answer else { return None };
    let words = words.iter().map(|word| match word {
        Value::Int(number) => Some(number.to_string()),
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    });
    words.collect()
}
