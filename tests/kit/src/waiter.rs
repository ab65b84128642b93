use std::io::{ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use redis::{Parser, Value};

use crate::client::{Client, Grant};
use crate::info::fields;
use crate::server::Server;
use crate::wait::wait_for;

/// No answer that must come takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A client with a blocked `DLOCK.ACQUIRE` of its own.
pub struct Waiter {
    stream: TcpStream,
    parser: Parser,
}

/// What a waiter was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Granted(Grant),
    Null,
    /// The whole error.
    Refused(String),
    /// The server closed the connection instead.
    Closed,
}

/// A waiter as DLOCK.INFO shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    pub owner: String,
    pub limit: i64,
    pub waited_ms: i64,
    pub timeout_ms: i64,
}

impl Server {
    /// A client that sends `DLOCK.ACQUIRE <args>`, when it stands in the queue.
    #[track_caller]
    pub fn waiter(&self, args: &str) -> Waiter {
        self.waiter_in(0, args)
    }

    /// As [`Server::waiter`], in another database.
    #[track_caller]
    pub fn waiter_in(&self, db: u32, args: &str) -> Waiter {
        let key = args.split_whitespace().next().expect("a key");
        let mut client = self.client();
        client.ok(&format!("SELECT {db}"));
        let before = client.waiting(key);
        let mut waiter = self.asker_in(db, args);
        wait_for("a place in the queue", || {
            assert!(
                waiter.is_silent(),
                "{args}: answered at once: {:?}",
                waiter.answer()
            );
            client.waiting(key) > before
        });
        waiter
    }

    /// A client that sends `DLOCK.ACQUIRE <args>`, whether it will wait or not.
    #[track_caller]
    pub fn asker(&self, args: &str) -> Waiter {
        let mut waiter = Waiter::connect(self);
        waiter.acquire(args);
        waiter
    }

    /// Whether CLIENT UNBLOCK reaches waiters. The 7.2 series could not bear it, and no feature tells that one.
    pub fn lets_waiters_be_unblocked(&self) -> bool {
        let info = self.client().info_section("server");
        let own = ["valkey_version", "redict_version", "redis_version"];
        let version = own.iter().find_map(|field| info.get(*field));
        !version.is_some_and(|version| version.starts_with("7.2."))
    }

    #[track_caller]
    fn asker_in(&self, db: u32, args: &str) -> Waiter {
        let mut waiter = Waiter::connect(self);
        if db != 0 {
            waiter.ask(&format!("SELECT {db}"));
        }
        waiter.acquire(args);
        waiter
    }
}

impl Client {
    /// How many wait for a lock.
    #[track_caller]
    pub fn waiting(&mut self, key: &str) -> i64 {
        self.find_lock(key).map_or(0, |lock| lock.waiting)
    }

    /// The queue of a lock, as far as DLOCK.INFO shows it.
    #[track_caller]
    pub fn waiters(&mut self, key: &str) -> Vec<WaiterInfo> {
        let waiters = self.find_lock(key).map_or(Vec::new(), |lock| lock.waiters);
        waiters.iter().map(WaiterInfo::parse).collect()
    }

    /// The owners in the queue of a lock, in order.
    #[track_caller]
    pub fn queue(&mut self, key: &str) -> Vec<String> {
        let waiters = self.waiters(key).into_iter();
        waiters.map(|waiter| waiter.owner).collect()
    }

    /// Waits until so many stand in the queue of a lock.
    #[track_caller]
    pub fn wait_for_queue(&mut self, key: &str, length: i64) {
        wait_for(&format!("{length} in the queue of {key}"), || {
            self.waiting(key) == length
        });
    }
}

impl Waiter {
    #[track_caller]
    pub fn connect(server: &Server) -> Self {
        let stream =
            TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts connections");
        stream.set_nodelay(true).expect("a socket takes an option");
        let waiter = Self {
            stream,
            parser: Parser::new(),
        };
        waiter.set_timeout(ANSWER_TIMEOUT);
        waiter
    }

    /// The number by which CLIENT KILL and CLIENT UNBLOCK know this client. To be asked before it waits.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        match self.ask("CLIENT ID") {
            Value::Int(id) => id,
            other => panic!("CLIENT ID answered {other:?}"),
        }
    }

    /// Sends `DLOCK.ACQUIRE <args>`.
    #[track_caller]
    pub fn acquire(&mut self, args: &str) {
        self.send(&format!("DLOCK.ACQUIRE {args}"));
    }

    /// Sends any command.
    #[track_caller]
    pub fn send(&mut self, command: &str) {
        self.stream
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("the server reads");
    }

    /// Sends any command and reads the answer.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> Value {
        self.send(command);
        self.next_answer()
    }

    /// What the server sends next.
    #[track_caller]
    pub fn next_answer(&mut self) -> Value {
        self.read().expect("the connection is open")
    }

    /// The answer; after it the connection must be as good as before, or closed.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        let answer = match self.read() {
            None => return Answer::Closed,
            Some(Value::Nil) => Answer::Null,
            Some(Value::ServerError(error)) => {
                let details = error.details().map(|details| format!(" {details}"));
                Answer::Refused(format!("{}{}", error.code(), details.unwrap_or_default()))
            }
            Some(value) => Answer::Granted(Grant::parse(value).expect("not null")),
        };
        self.expect_nothing_else();
        answer
    }

    /// The answer, if it comes so soon.
    #[track_caller]
    pub fn answer_within(&mut self, time: Duration) -> Option<Answer> {
        self.set_timeout(time);
        let peeked = self.stream.peek(&mut [0]);
        self.set_timeout(ANSWER_TIMEOUT);
        match peeked {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            _ => Some(self.answer()),
        }
    }

    fn set_timeout(&self, time: Duration) {
        self.stream
            .set_read_timeout(Some(time))
            .expect("a socket takes a timeout");
    }

    /// A second answer would come before the one to PING.
    #[track_caller]
    fn expect_nothing_else(&mut self) {
        // The server may have closed the connection after its answer.
        if self.stream.write_all(b"PING\r\n").is_ok() {
            let next = self.read();
            assert!(
                next.is_none() || next == Some(Value::SimpleString("PONG".into())),
                "a second answer: {next:?}"
            );
        }
    }

    #[track_caller]
    pub fn granted(&mut self) -> Grant {
        match self.answer() {
            Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[track_caller]
    pub fn gets_null(&mut self) {
        assert_eq!(self.answer(), Answer::Null);
    }

    /// The error that the waiter must get.
    #[track_caller]
    pub fn refusal(&mut self) -> String {
        match self.answer() {
            Answer::Refused(error) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Fails when an answer is there. What the server did before a call of another client has arrived.
    #[track_caller]
    pub fn has_no_answer(&self) {
        assert!(self.is_silent(), "there is an answer already");
    }

    fn is_silent(&self) -> bool {
        self.set_nonblocking(true);
        let peeked = self.stream.peek(&mut [0]);
        self.set_nonblocking(false);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn set_nonblocking(&self, nonblocking: bool) {
        self.stream
            .set_nonblocking(nonblocking)
            .expect("a socket takes an option");
    }

    /// Closes the connection, as a client that ends does.
    pub fn close(self) {
        // An error means that the server was faster.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// `None` when the server closed the connection.
    #[track_caller]
    fn read(&mut self) -> Option<Value> {
        match self.parser.parse_value(&self.stream) {
            Ok(value) => Some(value),
            Err(error) if error.is_timeout() => panic!("no answer within {ANSWER_TIMEOUT:?}"),
            Err(error) if error.is_io_error() => None,
            Err(error) => panic!("not an answer: {error}"),
        }
    }
}

impl WaiterInfo {
    #[track_caller]
    fn parse(value: &Value) -> Self {
        let fields = fields(value, &["limit", "owner", "timeout-ms", "waited-ms"]);
        let number = |name: &str| match &fields[name] {
            Value::Int(number) => *number,
            other => panic!("{name} is {other:?}"),
        };
        Self {
            owner: redis::from_redis_value(fields["owner"].clone()).expect("a plain name"),
            limit: number("limit"),
            waited_ms: number("waited-ms"),
            timeout_ms: number("timeout-ms"),
        }
    }
}
