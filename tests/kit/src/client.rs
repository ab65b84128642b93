use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use redis::{Connection, ConnectionLike as _, FromRedisValue, RedisError, RedisResult, Value};

use crate::connection::packed;
use crate::info::LockInfo;
use crate::wait::{WAIT_TIMEOUT, wait_for};

const SYNC_TIMEOUT_MS: u64 = 30_000;

/// A connection that takes commands as typed in redis-cli.
pub struct Client {
    connection: Connection,
}

/// The reply to an ACQUIRE that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub fence: u64,
    pub holds: u64,
    pub lease_ms: u64,
    pub waited_ms: u64,
}

impl Grant {
    /// `None` for the null reply.
    #[track_caller]
    pub fn parse(reply: Value) -> Option<Self> {
        let reply: Option<(u64, u64, u64, u64)> =
            redis::from_redis_value(reply).expect("four integers or null");
        reply.map(|(fence, holds, lease_ms, waited_ms)| Self {
            fence,
            holds,
            lease_ms,
            waited_ms,
        })
    }
}

impl Client {
    pub fn connect(url: &str) -> Self {
        Self::try_connect(url).expect("the server accepts connections")
    }

    /// As [`Client::connect`], for a server that may be shutting down or may close the connection.
    pub fn try_connect(url: &str) -> RedisResult<Self> {
        let connection = redis::Client::open(url)?.get_connection()?;
        connection.set_read_timeout(Some(WAIT_TIMEOUT))?;
        Ok(Self { connection })
    }

    /// Sends a command, split at spaces.
    pub fn call(&mut self, command: &str) -> RedisResult<Value> {
        self.call_args(&command.split_whitespace().map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Sends a command with binary-safe arguments.
    pub fn call_args(&mut self, words: &[&[u8]]) -> RedisResult<Value> {
        self.connection
            .req_packed_command(&packed(words))?
            .extract_error()
    }

    /// The reply to a command that must succeed.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&mut self, command: &str) -> T {
        convert(command, self.call(command))
    }

    #[track_caller]
    pub fn ask_args<T: FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        convert(
            &String::from_utf8_lossy(&words.join(&b' ')),
            self.call_args(words),
        )
    }

    /// A command whose reply must be OK.
    #[track_caller]
    pub fn ok(&mut self, command: &str) {
        assert_eq!(self.ask::<Value>(command), Value::Okay, "{command}");
    }

    /// The error code (the first word) with which the command must fail.
    #[track_caller]
    pub fn error_code(&mut self, command: &str) -> String {
        first_word(&expect_error(command, self.call(command)))
    }

    /// A command that must fail with this error code.
    #[track_caller]
    pub fn assert_error(&mut self, code: &str, command: &str) {
        assert_eq!(self.error_code(command), code, "{command}");
    }

    #[track_caller]
    pub fn error_code_args(&mut self, words: &[&[u8]]) -> String {
        first_word(&expect_error(
            &String::from_utf8_lossy(&words.join(&b' ')),
            self.call_args(words),
        ))
    }

    /// The whole error with which the command must fail.
    #[track_caller]
    pub fn error(&mut self, command: &str) -> String {
        error_text(&expect_error(command, self.call(command)))
    }

    /// `DLOCK.ACQUIRE` that must be granted.
    #[track_caller]
    pub fn acquire(&mut self, args: &str) -> Grant {
        self.try_acquire(args)
            .unwrap_or_else(|| panic!("DLOCK.ACQUIRE {args} was not granted"))
    }

    /// `DLOCK.ACQUIRE`, `None` for the null reply.
    #[track_caller]
    pub fn try_acquire(&mut self, args: &str) -> Option<Grant> {
        Grant::parse(self.ask(&format!("DLOCK.ACQUIRE {args}")))
    }

    /// `DLOCK.RELEASE` that must succeed: the remaining holds.
    #[track_caller]
    pub fn release(&mut self, args: &str) -> i64 {
        self.ask(&format!("DLOCK.RELEASE {args}"))
    }

    /// `DLOCK.EXTEND` that must succeed: the remaining lease.
    #[track_caller]
    pub fn extend(&mut self, args: &str) -> u64 {
        self.ask(&format!("DLOCK.EXTEND {args}"))
    }

    #[track_caller]
    pub fn owner(&mut self, key: &str) -> Option<String> {
        self.ask(&format!("DLOCK.OWNER {key}"))
    }

    /// `DLOCK.INFO` of a lock that is held or waited for.
    #[track_caller]
    pub fn lock(&mut self, key: &str) -> LockInfo {
        self.find_lock(key)
            .unwrap_or_else(|| panic!("{key} has no holders and no waiters"))
    }

    /// `DLOCK.INFO`, `None` for the null reply.
    #[track_caller]
    pub fn find_lock(&mut self, key: &str) -> Option<LockInfo> {
        LockInfo::parse(&self.ask(&format!("DLOCK.INFO {key}")))
    }

    /// The lock must have this holder, and no other.
    #[track_caller]
    pub fn assert_sole_holder(&mut self, key: &str, owner: &str, fence: u64, holds: u64) {
        let standing = self.lock(key).standing();
        assert_eq!(standing, [(owner.to_owned(), fence, holds)], "{key}");
    }

    pub fn exists(&mut self, key: &str) -> bool {
        self.ask(&format!("EXISTS {key}"))
    }

    /// Waits until one replica has everything that was written before.
    #[track_caller]
    pub fn sync(&mut self) {
        // WAIT is about what was written before the last command of this connection: without one, about nothing.
        self.ask::<String>("PING");
        let replicas: i64 = self.ask(&format!("WAIT 1 {SYNC_TIMEOUT_MS}"));
        assert!(replicas >= 1, "no replica confirmed within {SYNC_TIMEOUT_MS} ms");
    }

    /// Waits until no rewrite of the AOF runs or is scheduled. The last one must have succeeded.
    #[track_caller]
    pub fn wait_for_aof_rewrite(&mut self) {
        wait_for("the end of the AOF rewrite", || {
            let info = self.info_section("persistence");
            info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
        });
        assert_eq!(self.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
    }

    /// A field of INFO, empty when it is not there.
    pub fn server_info(&mut self, section: &str, field: &str) -> String {
        self.info_section(section).remove(field).unwrap_or_default()
    }

    pub fn info_section(&mut self, section: &str) -> BTreeMap<String, String> {
        let text: String = self.ask(&format!("INFO {section}"));
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields
            .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
            .collect()
    }

    /// A number of the INFO section `dlock`.
    #[track_caller]
    pub fn stat(&mut self, field: &str) -> i64 {
        self.server_number("dlock", field)
    }

    /// A number in INFO.
    #[track_caller]
    pub fn server_number<T: FromStr>(&mut self, section: &str, field: &str) -> T {
        let value = self.server_info(section, field);
        let number = value.parse();
        number.unwrap_or_else(|_| panic!("INFO {section}: {field} is {value:?}"))
    }

    /// A number in INFO commandstats; 0 if the command was not called yet.
    #[track_caller]
    pub fn command_stat(&mut self, command: &str, field: &str) -> u64 {
        let stats = self.server_info("commandstats", &format!("cmdstat_{command}"));
        let mut fields = stats.split(',').filter_map(|field| field.split_once('='));
        let value = fields.find(|(name, _)| *name == field);
        value.map_or(0, |(_, value)| value.parse().expect("a number"))
    }

    /// How often the server was asked for a command.
    #[track_caller]
    pub fn calls(&mut self, command: &str) -> u64 {
        self.command_stat(command, "calls")
    }

    /// The digest of a key's value.
    pub fn digest(&mut self, key: &str) -> String {
        self.ask::<Vec<String>>(&format!("DEBUG DIGEST-VALUE {key}"))
            .concat()
    }

    #[track_caller]
    pub fn config_set(&mut self, name: &str, value: &str) {
        self.ok(&format!("CONFIG SET {name} {value}"));
    }

    /// A setting, empty if the server does not know it.
    pub fn config(&mut self, name: &str) -> String {
        self.ask::<Vec<String>>(&format!("CONFIG GET {name}"))
            .pop()
            .unwrap_or_default()
    }

    /// Sends many commands at once and reads all replies. Errors are among them.
    #[track_caller]
    pub fn pipeline<'a>(&mut self, commands: impl IntoIterator<Item = Vec<&'a [u8]>>) -> Vec<Value> {
        let mut bytes = Vec::new();
        let mut count = 0;
        for words in commands {
            bytes.extend(packed(&words));
            count += 1;
        }
        self.connection
            .req_packed_commands(&bytes, 0, count)
            .expect("the server replies")
    }

    /// Runs commands and pauses writes in one batch: the server cannot sweep in between, nor afterwards.
    #[track_caller]
    pub fn pause_writes_after(&mut self, commands: &[&str]) {
        self.batch(&[commands, &["CLIENT PAUSE 600000 WRITE"]].concat());
    }

    /// Waits until the lease has expired. While writes are paused, the expired holder stays in the lock.
    #[track_caller]
    pub fn wait_for_lease_end(&mut self, key: &str, owner: &str) {
        wait_for("the end of the lease", || {
            self.find_lock(key)
                .is_none_or(|lock| !lock.owners().iter().any(|holder| holder == owner))
        });
    }

    /// Resumes writes and runs commands in one batch, before the server can sweep.
    #[track_caller]
    pub fn resume_writes_with(&mut self, commands: &[&str]) -> Vec<Value> {
        self.batch(&[&["CLIENT UNPAUSE"], commands].concat()).split_off(1)
    }

    /// Sends commands in one packet: the server runs them with nothing in between.
    #[track_caller]
    pub fn batch<T: AsRef<str>>(&mut self, commands: &[T]) -> Vec<Value> {
        self.pipeline(
            commands
                .iter()
                .map(|command| command.as_ref().split_whitespace().map(str::as_bytes).collect()),
        )
    }

    /// Sends a command and does not read its reply.
    pub fn send(&mut self, command: &str) {
        self.send_args(&command.split_whitespace().map(str::as_bytes).collect::<Vec<_>>());
    }

    /// As [`Client::send`], with binary-safe arguments.
    pub fn send_args(&mut self, words: &[&[u8]]) {
        let sent = self.connection.send_packed_command(&packed(words));
        sent.expect("the server reads");
    }

    /// The connection itself, for tests of the client library.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

#[track_caller]
fn convert<T: FromRedisValue>(command: &str, reply: RedisResult<Value>) -> T {
    let value = reply.unwrap_or_else(|error| panic!("{command}: {error}"));
    let shown = format!("{value:?}");
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{command} replied {shown}: {error}"))
}

#[track_caller]
fn expect_error(command: &str, reply: RedisResult<Value>) -> RedisError {
    reply.expect_err(&format!("{command} must fail"))
}

fn first_word(error: &RedisError) -> String {
    error
        .code()
        .unwrap_or_else(|| panic!("not a server error: {error}"))
        .to_owned()
}

fn error_text(error: &RedisError) -> String {
    let mut text = first_word(error);
    if let Some(detail) = error.detail() {
        let _ = write!(text, " {detail}");
    }
    text
}
