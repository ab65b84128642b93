//! Somebody who asks for locks and writes down what comes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;

use super::connection::{Connection, Failure, Scissors};
use super::route::{Route, Target};
use crate::history::{Acquire, Answer, Journal, Op, Request, now};

/// A slot on its way may send a request to and fro.
const MOST_REDIRECTIONS: u32 = 5;

/// The connection of an actor, for those who want to cut it.
#[derive(Clone, Default)]
pub struct Line(Arc<Mutex<Option<Scissors>>>);

impl Line {
    /// As if the client had died.
    pub fn cut(&self) {
        if let Some(scissors) = lock(&self.0).as_ref() {
            scissors.cut();
        }
    }
}

/// A client with a connection of its own.
pub struct Actor {
    /// In whose name it asks.
    pub owner: String,
    route: Route,
    journal: Journal,
    patience: Duration,
    connection: Option<(Connection, Target)>,
    line: Line,
}

impl Actor {
    /// `patience`: for how long it waits for an answer, beside the time that a request may wait.
    pub fn new(owner: String, route: Route, journal: Journal, patience: Duration) -> Self {
        Self {
            owner,
            route,
            journal,
            patience,
            connection: None,
            line: Line::default(),
        }
    }

    /// To cut its connection by.
    pub fn line(&self) -> Line {
        self.line.clone()
    }

    /// DLOCK.ACQUIRE. `None`: nobody was there to ask.
    pub fn acquire(&mut self, key: &str, acquire: Acquire) -> Option<Op> {
        self.ask(key, Request::Acquire(acquire))
    }

    /// DLOCK.EXTEND. `None`: nobody was there to ask.
    pub fn extend(&mut self, key: &str, lease_ms: u64, fence: Option<u64>) -> Option<Op> {
        self.ask(key, Request::Extend { lease_ms, fence })
    }

    /// DLOCK.RELEASE. `None`: nobody was there to ask.
    pub fn release(&mut self, key: &str, fence: Option<u64>, all: bool, reqid: Option<String>) -> Option<Op> {
        self.ask(key, Request::Release { fence, all, reqid })
    }

    /// Asks, and follows redirections: each is a request of its own.
    fn ask(&mut self, key: &str, request: Request) -> Option<Op> {
        let mut target = self.route.target(key);
        let mut op = self.ask_at(target, key, &request, false)?;
        for _ in 0..MOST_REDIRECTIONS {
            let Some((is_for_good, port)) = redirection(&op.answer) else {
                break;
            };
            if is_for_good {
                self.route.learn(key, port);
                target = self.route.target(key);
            } else {
                target = self.route.node(port);
            }
            op = self.ask_at(target, key, &request, !is_for_good)?;
        }
        Some(op)
    }

    /// `asking`: the node is told that it was named in an ASK.
    fn ask_at(&mut self, target: Target, key: &str, request: &Request, asking: bool) -> Option<Op> {
        if !self.connect(target) {
            self.route.try_elsewhere(key, target.port);
            return None;
        }
        if asking {
            // If it fails, so does the request.
            let _ = self.exchange(&["ASKING".to_owned()], self.patience);
        }
        let command = words(key, &self.owner, request);
        let sent = now();
        let answer = match self.exchange(&command, self.patience_for(request)) {
            Ok(value) => understood(request, value),
            Err(Failure::Lost) => Answer::Lost,
            Err(Failure::Silent) => Answer::Silent,
            Err(Failure::Strange(what)) => Answer::Strange(what),
        };
        let answered = now();
        if answer.is_unknown() || matches!(answer, Answer::Strange(_)) {
            self.hang_up();
        }
        let op = Op {
            owner: self.owner.clone(),
            key: key.to_owned(),
            place: target.place,
            request: request.clone(),
            sent,
            answered,
            answer,
        };
        self.journal.op(op.clone());
        Some(op)
    }

    fn exchange(&mut self, words: &[String], patience: Duration) -> Result<Value, Failure> {
        match &mut self.connection {
            Some((connection, _)) => connection.ask(words, patience),
            None => Err(Failure::Lost),
        }
    }

    fn patience_for(&self, request: &Request) -> Duration {
        match request {
            Request::Acquire(Acquire {
                block_ms: Some(ms), ..
            }) => self.patience + Duration::from_millis(*ms),
            _ => self.patience,
        }
    }

    /// Whether there is a connection to the target now.
    fn connect(&mut self, target: Target) -> bool {
        if self.connection.as_ref().is_some_and(|(_, old)| *old == target) {
            return true;
        }
        self.hang_up();
        self.connection = Connection::open(target.port).map(|connection| (connection, target));
        *lock(&self.line.0) = self
            .connection
            .as_ref()
            .and_then(|(connection, _)| connection.scissors());
        self.connection.is_some()
    }

    fn hang_up(&mut self) {
        self.line.cut();
        self.connection = None;
    }
}

/// The command as it is sent.
fn words(key: &str, owner: &str, request: &Request) -> Vec<String> {
    let text = request.to_string();
    let mut words = text.split_whitespace().map(str::to_owned);
    let verb = words.next().unwrap_or_default();
    let name = [format!("DLOCK.{verb}"), key.to_owned(), owner.to_owned()];
    name.into_iter().chain(words).collect()
}

/// `MOVED 3999 127.0.0.1:6381` or `ASK ...`: whether it is for good, and the port.
fn redirection(answer: &Answer) -> Option<(bool, u16)> {
    let Answer::Refused(error) = answer else {
        return None;
    };
    let mut words = error.split_whitespace();
    let is_for_good = match words.next()? {
        "MOVED" => true,
        "ASK" => false,
        _ => return None,
    };
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((is_for_good, port.parse().ok()?))
}

/// The answer in our terms, if it is one to this request.
fn understood(request: &Request, value: Value) -> Answer {
    match (request, value) {
        (_, Value::ServerError(error)) => Answer::Refused(format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        )),
        (Request::Acquire(_), Value::Nil) => Answer::Null,
        (Request::Acquire(_), Value::Array(values)) => grant(&values),
        (Request::Extend { .. }, Value::Int(ms @ 0..)) => Answer::Lease(ms.unsigned_abs()),
        (Request::Release { .. }, Value::Int(left @ 0..)) => Answer::Left(left.unsigned_abs()),
        (_, other) => Answer::Strange(format!("{other:?}")),
    }
}

fn grant(values: &[Value]) -> Answer {
    let numbers: Vec<u64> = values
        .iter()
        .filter_map(|value| match value {
            Value::Int(number @ 0..) => Some(number.unsigned_abs()),
            _ => None,
        })
        .collect();
    match *numbers.as_slice() {
        [fence, holds, lease_ms, waited_ms] if values.len() == 4 => Answer::Granted {
            fence,
            holds,
            lease_ms,
            waited_ms,
        },
        _ => Answer::Strange(format!("{values:?}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
