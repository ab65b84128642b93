use std::time::{Duration, Instant};

use redis::{ServerError, Value};

use crate::client::{Client, Grant};
use crate::connection::Connection;
use crate::info::{fields, pairs};
use crate::server::Server;
use crate::wait::{WAIT_TIMEOUT, pause, wait_for};

/// A client that blocks in `DLOCK.ACQUIRE`.
pub struct Waiter {
    connection: Connection,
}

/// The reply to a blocked `DLOCK.ACQUIRE`.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Granted(Grant),
    Null,
    /// The whole error.
    Error(String),
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
    /// Whether an inbox gets its answer: it has a field `wait`, which others do not have.
    pub is_queued: bool,
}

impl Server {
    /// A client that has sent `DLOCK.ACQUIRE <args>` and is queued.
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
        let mut waiter = self.send_acquire_in(db, args);
        wait_for("the waiter to be queued", || {
            let is_expected = waiter.is_silent();
            assert!(is_expected, "{args}: replied at once: {:?}", waiter.reply());
            client.waiting(key) > before
        });
        waiter
    }

    /// As [`Server::waiter`], behind holders that acquire in the same packet (`DLOCK.ACQUIRE <args>` each): however slow
    /// the machine is, their leases expire after the waiter has arrived. Returns their grants too.
    #[track_caller]
    pub fn waiter_behind(&self, holders: &[&str], args: &str) -> (Waiter, Vec<Grant>) {
        let mut waiter = Waiter::connect(self);
        let grants = waiter.acquire_behind(holders, args);
        (waiter, grants)
    }

    /// A client that has sent `DLOCK.ACQUIRE <args>`, whether it has to wait or not.
    #[track_caller]
    pub fn send_acquire(&self, args: &str) -> Waiter {
        let mut waiter = Waiter::connect(self);
        waiter.acquire(args);
        waiter
    }

    /// Whether CLIENT UNBLOCK reaches waiters. It crashes Redis 7.2, which is only known by its version.
    pub fn supports_client_unblock(&self) -> bool {
        let info = self.client().info_section("server");
        let own = ["valkey_version", "redict_version", "redis_version"];
        let version = own.iter().find_map(|field| info.get(*field));
        !version.is_some_and(|version| version.starts_with("7.2."))
    }

    #[track_caller]
    fn send_acquire_in(&self, db: u32, args: &str) -> Waiter {
        let mut waiter = Waiter::connect(self);
        if db != 0 {
            waiter.ask(&format!("SELECT {db}"));
        }
        waiter.acquire(args);
        waiter
    }
}

impl Client {
    /// The number of waiters of a lock.
    #[track_caller]
    pub fn waiting(&mut self, key: &str) -> i64 {
        self.find_lock(key).map_or(0, |lock| lock.waiting)
    }

    /// The queue of a lock, as DLOCK.INFO shows it.
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

    /// Waits until the queue of a lock has this length.
    #[track_caller]
    pub fn wait_for_queue(&mut self, key: &str, length: i64) {
        wait_for(&format!("{length} waiters of {key}"), || {
            self.waiting(key) == length
        });
    }
}

impl Waiter {
    #[track_caller]
    pub fn connect(server: &Server) -> Self {
        let connection = Connection::open(server.port()).expect("the server accepts connections");
        Self { connection }
    }

    /// The client id, for CLIENT KILL and CLIENT UNBLOCK. Ask before it blocks.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        match self.ask("CLIENT ID") {
            Value::Int(id) => id,
            other => panic!("CLIENT ID replied {other:?}"),
        }
    }

    /// Sends `DLOCK.ACQUIRE <args>`.
    #[track_caller]
    pub fn acquire(&mut self, args: &str) {
        self.send(&format!("DLOCK.ACQUIRE {args}"));
    }

    /// See [`Server::waiter_behind`].
    #[track_caller]
    pub fn acquire_behind(&mut self, holders: &[&str], args: &str) -> Vec<Grant> {
        let requests = [holders, &[args]].concat().join("\r\nDLOCK.ACQUIRE ");
        self.acquire(&requests);
        let grants = holders.iter().map(|_| Grant::parse(self.next_reply()));
        grants.collect::<Option<_>>().expect("the holders are granted")
    }

    /// Sends any command.
    #[track_caller]
    pub fn send(&mut self, command: &str) {
        let sent = self.connection.send(format!("{command}\r\n").as_bytes());
        sent.expect("the server reads");
    }

    /// Sends any command and reads the reply.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> Value {
        self.send(command);
        self.next_reply()
    }

    /// The next reply of the server.
    #[track_caller]
    pub fn next_reply(&mut self) -> Value {
        self.read().expect("the connection is open")
    }

    /// The reply. Afterwards the connection must still work, or be closed.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        let reply = match self.read() {
            None => return Reply::Closed,
            Some(Value::Nil) => Reply::Null,
            Some(Value::ServerError(error)) => Reply::Error(error_text(&error)),
            Some(value) => Reply::Granted(Grant::parse(value).expect("not null")),
        };
        self.expect_nothing_else();
        reply
    }

    /// The reply, if it arrives within this time.
    #[track_caller]
    pub fn reply_within(&mut self, time: Duration) -> Option<Reply> {
        let end = Instant::now() + time;
        while self.is_silent() {
            if Instant::now() >= end {
                return None;
            }
            pause(1);
        }
        Some(self.reply())
    }

    /// A second reply would precede that to PING.
    #[track_caller]
    fn expect_nothing_else(&mut self) {
        // The server may have closed the connection after its reply.
        if self.connection.send(b"PING\r\n").is_ok() {
            let next = self.read();
            let is_expected = next.is_none() || next == Some(Value::SimpleString("PONG".into()));
            assert!(is_expected, "a second reply: {next:?}");
        }
    }

    #[track_caller]
    pub fn granted(&mut self) -> Grant {
        match self.reply() {
            Reply::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[track_caller]
    pub fn assert_null(&mut self) {
        assert_eq!(self.reply(), Reply::Null);
    }

    /// The error with which the request must fail.
    #[track_caller]
    pub fn error(&mut self) -> String {
        match self.reply() {
            Reply::Error(error) => error,
            other => panic!("not an error: {other:?}"),
        }
    }

    /// Fails if a reply has arrived. Whatever the server did before its reply to another client has arrived by then.
    #[track_caller]
    pub fn assert_waiting(&self) {
        assert!(self.is_silent(), "the waiter has got a reply");
    }

    /// Whether no reply has arrived yet.
    pub fn is_silent(&self) -> bool {
        self.connection.is_silent().unwrap_or(false)
    }

    /// Closes the connection, as an exiting client does.
    pub fn close(self) {}

    /// The next reply, or `None` when the server closed the connection.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Option<Value> {
        match self.connection.read(WAIT_TIMEOUT) {
            Ok(value) => Some(value),
            Err(error) if error.is_timeout() => panic!("no reply within {WAIT_TIMEOUT:?}"),
            Err(error) if error.is_io_error() => None,
            Err(error) => panic!("not a reply: {error}"),
        }
    }
}

impl WaiterInfo {
    #[track_caller]
    fn parse(value: &Value) -> Self {
        let mut pairs = pairs(value);
        let mark = pairs.pop_if(|(name, _)| name == "wait");
        let is_queued = mark.is_some_and(|(_, mark)| mark == Value::BulkString(b"queue".to_vec()));
        let fields = fields(pairs, &["limit", "owner", "timeout-ms", "waited-ms"]);
        let text = |name: &str| redis::from_redis_value_ref(&fields[name]).expect("UTF-8");
        let number = |name: &str| match &fields[name] {
            Value::Int(number) => *number,
            other => panic!("{name} is {other:?}"),
        };
        Self {
            owner: text("owner"),
            limit: number("limit"),
            waited_ms: number("waited-ms"),
            timeout_ms: number("timeout-ms"),
            is_queued,
        }
    }
}

/// The whole text of an error.
pub(crate) fn error_text(error: &ServerError) -> String {
    let details = error.details().map(|details| format!(" {details}"));
    format!("{}{}", error.code(), details.unwrap_or_default())
}
