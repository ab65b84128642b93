//! A client that records every request with its reply.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_testkit::Connection;
use redis::{RedisError, RedisResult, Value};

use super::route::{Route, Target};
use crate::history::{Acquire, GUARDED, Op, Push, Recorder, Reply, Request, Wait, now};

/// A migrating slot may bounce a request between two nodes.
const MAX_REDIRECTIONS: u32 = 5;

/// Cuts the current connection of a client from another thread.
#[derive(Clone, Default)]
pub struct ConnCutter(Arc<Mutex<Option<TcpStream>>>);

impl ConnCutter {
    /// Closes the connection, as if the client had died.
    pub fn cut(&self) {
        if let Some(stream) = lock(&self.0).as_ref() {
            // An error means that it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A client with one connection at a time.
pub struct LockClient {
    pub owner: String,
    route: Route,
    recorder: Recorder,
    reply_timeout: Duration,
    connection: Option<(Connection, Target)>,
    cutter: ConnCutter,
}

impl LockClient {
    /// `reply_timeout` is added to the BLOCK time of a request.
    pub fn new(owner: String, route: Route, recorder: Recorder, reply_timeout: Duration) -> Self {
        Self {
            owner,
            route,
            recorder,
            reply_timeout,
            connection: None,
            cutter: ConnCutter::default(),
        }
    }

    /// The same owner on another connection.
    pub fn with_new_connection(&self) -> Self {
        let (route, recorder) = (self.route.clone(), self.recorder.clone());
        Self::new(self.owner.clone(), route, recorder, self.reply_timeout)
    }

    pub fn cutter(&self) -> ConnCutter {
        self.cutter.clone()
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
        let mut target = self.route.target(key);
        let mut op = self.request_from(target, key, &request, false)?;
        for _ in 0..MAX_REDIRECTIONS {
            let Some((is_moved, port)) = redirection(&op.reply) else {
                break;
            };
            if is_moved {
                self.route.record_moved(key, port);
                target = self.route.target(key);
            } else {
                target = self.route.node(port);
            }
            op = self.request_from(target, key, &request, !is_moved)?;
        }
        Some(op)
    }

    /// `asking`: send ASKING first.
    fn request_from(&mut self, target: Target, key: &str, request: &Request, asking: bool) -> Option<Op> {
        if !self.connect(target) {
            self.route.try_next_node(key, target.port);
            return None;
        }
        // While this connected, a server may have started on this port in a new term.
        if !asking && self.route.target(key) != target {
            return None;
        }
        if asking {
            // If this fails, so does the request.
            let _ = self.exchange(&["ASKING".to_owned()], self.reply_timeout);
        }
        let command = command_args(key, &self.owner, request);
        let sent = now();
        let reply = match self.exchange(&command, self.reply_timeout_for(request)) {
            Ok(value) => parse_reply(request, value),
            Err(error) => no_reply(&error),
        };
        let replied = now();
        if reply.is_unknown() || matches!(reply, Reply::Unexpected(_)) {
            self.disconnect();
        }
        let op = Op {
            owner: self.owner.clone(),
            key: key.to_owned(),
            server: target.server,
            request: request.clone(),
            sent,
            replied,
            reply,
        };
        self.recorder.op(op.clone());
        Some(op)
    }

    fn exchange(&mut self, args: &[String], reply_timeout: Duration) -> RedisResult<Value> {
        match &mut self.connection {
            Some((connection, _)) => connection.call(args, reply_timeout),
            None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
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

    /// Connects to the target unless it is connected already. Returns whether it is.
    fn connect(&mut self, target: Target) -> bool {
        if self.connection.as_ref().is_some_and(|(_, old)| *old == target) {
            return true;
        }
        self.disconnect();
        let connection = Connection::open(target.port).ok();
        self.connection = connection.map(|connection| (connection, target));
        *lock(&self.cutter.0) = self
            .connection
            .as_ref()
            .and_then(|(connection, _)| connection.try_clone_stream().ok());
        self.connection.is_some()
    }

    fn disconnect(&mut self) {
        self.cutter.cut();
        self.connection = None;
    }
}

/// The arguments of a command on the wire.
pub(super) fn command_args(key: &str, owner: &str, request: &Request) -> Vec<String> {
    let text = request.to_string();
    let mut args = text.split_whitespace().map(str::to_owned);
    if matches!(request, Request::Push(push) if !push.list.ends_with(GUARDED)) {
        return args.collect();
    }
    let verb = args.next().unwrap_or_default();
    let name = [format!("DLOCK.{verb}"), key.to_owned(), owner.to_owned()];
    name.into_iter().chain(args).collect()
}

/// Parses `MOVED 3999 127.0.0.1:6381` or `ASK ...`: whether it is MOVED, and the port.
pub(super) fn redirection(reply: &Reply) -> Option<(bool, u16)> {
    let Reply::Error(error) = reply else {
        return None;
    };
    let mut words = error.split_whitespace();
    let is_moved = match words.next()? {
        "MOVED" => true,
        "ASK" => false,
        _ => return None,
    };
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((is_moved, port.parse().ok()?))
}

/// Converts a value, which is unexpected if its type does not fit the request.
pub(super) fn parse_reply(request: &Request, value: Value) -> Reply {
    match (request, value) {
        (_, Value::ServerError(error)) => Reply::Error(format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        )),
        (Request::Acquire(_), Value::Nil) => Reply::Null,
        (Request::Acquire(_), Value::Array(values)) => grant(&values),
        (Request::Extend { .. }, Value::Int(ms @ 0..)) => Reply::Lease(ms.unsigned_abs()),
        (Request::Push(_), Value::Int(length @ 0..)) => Reply::Length(length.unsigned_abs()),
        (Request::Release { .. }, Value::Int(left @ 0..)) => Reply::Remaining(left.unsigned_abs()),
        (_, other) => Reply::Unexpected(format!("{other:?}")),
    }
}

/// Why there is no reply.
pub(super) fn no_reply(error: &RedisError) -> Reply {
    if error.is_timeout() {
        Reply::TimedOut
    } else if error.is_io_error() {
        Reply::Disconnected
    } else {
        Reply::Unexpected(error.to_string())
    }
}

fn grant(values: &[Value]) -> Reply {
    let numbers: Vec<u64> = values
        .iter()
        .filter_map(|value| match value {
            Value::Int(number @ 0..) => Some(number.unsigned_abs()),
            _ => None,
        })
        .collect();
    match *numbers.as_slice() {
        [fence, holds, lease_ms, waited_ms] if values.len() == 4 => Reply::Granted {
            fence,
            holds,
            lease_ms,
            waited_ms,
        },
        [before] if values.len() == 1 => Reply::Queued(before),
        _ => Reply::Unexpected(format!("{values:?}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
