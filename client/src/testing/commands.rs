//! The commands, on the module's own engine: what the module is in a Redis server.

use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;
use std::time::{Duration, Instant as SystemInstant, SystemTime};

use dlock_core::engine::{
    self, Cause, Error, Host, MAX_WAITERS_SHOWN, Process, answering, begin_read, decide, guard,
};
use dlock_core::memory::{Clocks, DATABASES, Memory, Value};
use dlock_core::{
    Acquire, Acquired, Answer, Answered, Call, Extend, Granted, Grants, GrantsReply, Guard, Holder, Instant,
    LeaseClock, Limit, LockName, Policy, Queue, Release, Timeout, Waiter,
};

/// `dlock.max-lease-ms`
const MAX_LEASE_MS: u64 = 600_000;
/// The one user.
const USER: &[u8] = b"default";
/// The longest text of an error about an unknown command.
const MAX_SHOWN_CHARS: usize = 128;

const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

/// What commands know of a connection.
#[derive(Default)]
pub(crate) struct Client {
    db: i32,
    is_resp3: bool,
    /// The replies that are not sent yet.
    pub(crate) output: Vec<u8>,
}

/// The keys, queues and inboxes of a server. Its clocks are read once for each command.
pub(crate) struct Server {
    host: Memory,
    /// When the clock showed zero, and how far it has been set ahead since.
    zero: SystemInstant,
    ahead: Duration,
}

enum Reply {
    Null,
    NullArray,
    Simple(&'static str),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
    Error(String),
    /// The client waits for the reply to this call.
    Later(Call),
}

impl<E: Display> From<E> for Reply {
    fn from(error: E) -> Self {
        Self::Error(error.to_string())
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        let mut host = Memory::default();
        host.state().server.set_policy(Policy {
            max_waiters_per_lock: 10_000,
            max_waiters: 1_000_000,
            max_inboxes: 10_000,
            max_holders: Some(10_000),
            detect_deadlocks: true,
            ..Policy::default()
        });
        Self {
            host,
            zero: SystemInstant::now(),
            ahead: Duration::ZERO,
        }
    }

    /// Runs a command. Returns the call for which its client has to wait.
    pub(crate) fn run(&mut self, client: &mut Client, words: &[&[u8]]) -> Option<Call> {
        self.read_clock();
        match self.execute(client, words) {
            Ok(Reply::Later(call)) => Some(call),
            Ok(reply) | Err(reply) => {
                client.push(&reply);
                None
            }
        }
    }

    fn execute(&mut self, client: &mut Client, words: &[&[u8]]) -> Result<Reply, Reply> {
        let command = check_arity(words)?;
        let name = first_key(client.db, words);
        let args = words.iter().copied().skip(2);
        let flags = self.host.flags;
        let _ = self.host.select_db(client.db);
        Ok(match &*command {
            b"DLOCK.ACQUIRE" => self.acquire(&name, &Acquire::parse(args, MAX_LEASE_MS)?)?,
            b"DLOCK.RELEASE" => {
                let request = Release::parse(args)?;
                int(decide(
                    &mut self.host,
                    &name.key,
                    flags,
                    Cause::Client,
                    |transition| transition.release(&request),
                )?)
            }
            b"DLOCK.EXTEND" => {
                let request = Extend::parse(args, MAX_LEASE_MS)?;
                int(decide(
                    &mut self.host,
                    &name.key,
                    flags,
                    Cause::Client,
                    |transition| transition.extend(&request),
                )?)
            }
            b"DLOCK.GRANTS" => {
                let request = Grants::parse(words[1], args)?;
                let reply = answering::receive(&mut self.host, flags, USER, &request)?;
                reply.map_or_else(|| self.later(), |reply| answers(&reply))
            }
            b"DLOCK.GUARD" => self.guard(&name, &Guard::parse(args)?, &words[4..])?,
            b"DLOCK.OWNER" => {
                let clock = begin_read(&mut self.host, flags);
                let holders = self.holders(&name, clock)?;
                holders.first().map_or(Reply::Null, |holder| bulk(holder.owner()))
            }
            b"DLOCK.INFO" => self.info(&name)?,
            b"HELLO" => client.hello(words.get(1).copied())?,
            b"SELECT" => client.select(words[1])?,
            b"CLIENT" => Reply::Simple("OK"),
            b"INFO" => {
                let blocked = self.host.blocked_clients();
                bulk(format!("# Clients\r\nblocked_clients:{blocked}\r\n").as_bytes())
            }
            b"COMMAND" => Reply::Array(Vec::new()),
            _ => self.plain(client.db, &command, words)?,
        })
    }

    fn acquire(&mut self, name: &LockName, request: &Acquire<'_>) -> Result<Reply, Reply> {
        let flags = self.host.flags;
        Ok(
            match engine::acquire(&mut self.host, &name.key, flags, USER, request)? {
                Acquired::Granted(granted) => Reply::Array(numbers(&granted).into()),
                Acquired::NotGranted => Reply::NullArray,
                Acquired::Queued(ahead) if request.wait.is_some_and(|wait| wait.inbox.is_some()) => {
                    Reply::Array(vec![int(ahead)])
                }
                Acquired::Queued(_) => self.later(),
            },
        )
    }

    /// The client is blocked.
    fn later(&mut self) -> Reply {
        self.host.take_parked().map_or(Reply::NullArray, Reply::Later)
    }

    fn guard(&mut self, name: &LockName, request: &Guard<'_>, inner: &[&[u8]]) -> Result<Reply, Reply> {
        if let Some(command) = inner.first() {
            guard::check_command(command)?;
        }
        let flags = self.host.flags;
        let lease_ms = guard::check(&mut self.host, &name.key, flags, request)?;
        if inner.is_empty() {
            return Ok(int(lease_ms));
        }
        self.plain(name.db, &check_arity(inner)?, inner)
    }

    fn info(&mut self, name: &LockName) -> Result<Reply, Reply> {
        let flags = self.host.flags;
        let clock = begin_read(&mut self.host, flags);
        let holders = self.holders(name, clock)?;
        let queue = self.queue(name);
        if holders.is_empty() && queue.is_none() {
            return Ok(Reply::Null);
        }
        let limit = holders.iter().map(|holder| holder.limit()).min();
        let holders = holders.into_iter().map(|holder| shown_holder(holder, clock));
        let waiters = queue.into_iter().flat_map(Queue::iter).take(MAX_WAITERS_SHOWN);
        let waiters = waiters.map(|(_, waiter)| self.shown_waiter(waiter));
        Ok(Reply::Map(vec![
            ("limit", shown_limit(limit.unwrap_or(Limit::SHARED))),
            ("holders", Reply::Array(holders.collect())),
            ("waiting", int(queue.map_or(0, Queue::len))),
            ("waiters", Reply::Array(waiters.collect())),
        ]))
    }

    fn shown_waiter(&self, waiter: &Waiter) -> Reply {
        let timeout_ms = match waiter.timeout() {
            Timeout::Infinite => Reply::Integer(-1),
            Timeout::Ms(ms) => int(ms),
        };
        let mut fields = vec![
            ("owner", bulk(waiter.owner())),
            ("limit", shown_limit(waiter.limit())),
            ("waited-ms", int(waiter.since().ms_until(self.host.now()))),
            ("timeout-ms", timeout_ms),
        ];
        if self.host.engine().server.inboxes.has_name(waiter.inbox()) {
            fields.push(("wait", bulk(b"queue")));
        }
        Reply::Map(fields)
    }

    /// Commands that know nothing of locks, and that GUARD runs too.
    fn plain(&mut self, db: i32, command: &[u8], words: &[&[u8]]) -> Result<Reply, Reply> {
        let (name, keys) = (
            first_key(db, words),
            words[1..].iter().map(|key| LockName::new(db, key)),
        );
        Ok(match command {
            b"PING" => words
                .get(1)
                .map_or(Reply::Simple("PONG"), |message| bulk(message)),
            b"GET" => self.text(&name)?.map_or(Reply::Null, bulk),
            b"SET" => {
                self.host.put(name, words[2].to_owned());
                Reply::Simple("OK")
            }
            b"INCR" => {
                let text = str::from_utf8(self.text(&name)?.unwrap_or(b"0")).ok();
                let number = text.and_then(|text| text.parse::<i64>().ok()?.checked_add(1));
                let number = number.ok_or(NOT_INTEGER)?;
                self.host.put(name, number.to_string().into_bytes());
                int(number)
            }
            b"EXISTS" => int(keys.filter(|name| self.host.value(name).is_some()).count()),
            b"DEL" => int(keys.filter(|name| self.host.remove(name)).count()),
            _ => return Err(unknown(words)),
        })
    }

    fn text(&self, name: &LockName) -> Result<Option<&[u8]>, Reply> {
        match self.host.value(name) {
            Some(Value::Lock(_)) => Err(Error::WrongType.into()),
            Some(Value::Other(text)) => Ok(Some(text)),
            None => Ok(None),
        }
    }

    fn holders(&self, name: &LockName, clock: LeaseClock) -> Result<Vec<&Holder>, Reply> {
        match self.host.value(name) {
            Some(Value::Lock(value)) => Ok(value.lock.live_holders(clock).collect()),
            Some(Value::Other(_)) => Err(Error::WrongType.into()),
            None => Ok(Vec::new()),
        }
    }

    fn queue(&self, name: &LockName) -> Option<&Queue> {
        self.host.engine().server.wait_table.queue(name.as_ref())
    }

    /// Removes a key from all databases.
    pub(crate) fn lose(&mut self, key: &[u8]) {
        for db in 0..DATABASES {
            self.host.remove(&LockName::new(db, key));
        }
    }

    /// Does what is due: timeouts, expired leases, inboxes that end, grants whose clients are gone.
    pub(crate) fn process_due(&mut self) {
        self.host.run_due();
    }

    /// The calls that get their replies now.
    pub(crate) fn take_woken(&mut self) -> Vec<Call> {
        self.host.take_woken()
    }

    /// Replies to a call that waited.
    pub(crate) fn reply(&mut self, call: Call, client: &mut Client) {
        match answering::reply(&mut self.host, call) {
            Some(dlock_core::Reply::Grants(reply)) => client.push(&answers(&reply)),
            Some(dlock_core::Reply::Answer(answer)) => client.push(&match answer {
                Answer::Granted(granted) => Reply::Array(numbers(&granted).into()),
                Answer::Extended(lease_ms) => int(lease_ms),
                Answer::TimedOut | Answer::Withdrawn => Reply::NullArray,
                Answer::Rejected(error) => error.into(),
                Answer::Elsewhere(error) => error.into(),
            }),
            None => client.error(answering::SUPERSEDED),
        }
    }

    /// The client of a call is gone.
    pub(crate) fn lose_reader(&mut self, call: Call) {
        self.host.forget_blocked(call);
        answering::lose_reader(&mut self.host, call);
    }

    /// How long until something is due.
    pub(crate) fn time_until_due(&mut self) -> Option<Duration> {
        self.read_clock();
        let (due, now) = (self.host.next_due()?, self.host.now());
        let micros = due.as_micros().saturating_sub(now.as_micros());
        Some(Duration::from_micros(micros.try_into().unwrap_or(0)))
    }

    /// The holders of a lock, and its queue.
    #[cfg(test)]
    pub(crate) fn lock(&self, key: &[u8]) -> (Vec<&Holder>, Option<&Queue>) {
        let name = LockName::new(0, key);
        let holders = self.holders(&name, self.host.engine().server.clock(self.host.now()));
        (holders.unwrap_or_default(), self.queue(&name))
    }

    #[cfg(test)]
    pub(crate) fn has_inbox(&self, name: &[u8]) -> bool {
        self.host.engine().server.inboxes.find(name).is_some()
    }

    /// Those who wait for a lock are told to ask elsewhere.
    #[cfg(test)]
    pub(crate) fn turn_away(&mut self, key: &[u8], error: &str) {
        let refusal = engine::WriteCheck::Elsewhere(error.to_owned());
        self.host.refusal = Some(refusal);
        self.host.make_due(&LockName::new(0, key));
        self.host.run_due();
        self.host.refusal = None;
    }

    pub(crate) fn read_clock(&mut self) {
        let uptime = self.zero.elapsed();
        #[cfg(test)]
        let uptime = crate::simulation::server_uptime().unwrap_or(uptime);
        self.set_clock(after(Instant::default(), uptime.saturating_add(self.ahead)));
    }

    fn set_clock(&mut self, now: Instant) {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.host.clocks = Clocks {
            now,
            unix_ms: unix.unwrap_or_default().as_millis() as u64,
            random: RandomState::new().build_hasher().finish(),
        };
    }

    /// Sets the clock ahead. Unless the server is paused, it stops wherever something is due: so the lease of the next
    /// waiter begins when that of the holder ends.
    pub(crate) fn advance(&mut self, time: Duration, is_paused: bool) {
        self.read_clock();
        let end = after(self.host.now(), time);
        self.ahead = self.ahead.saturating_add(time);
        while let Some(at) = self.host.next_due().filter(|at| *at <= end && !is_paused) {
            self.set_clock(self.host.now().max(at));
            self.process_due();
        }
    }
}

impl Client {
    fn select(&mut self, db: &[u8]) -> Result<Reply, Reply> {
        let db = str::from_utf8(db).ok().and_then(|db| db.parse().ok());
        let db = db.ok_or(NOT_INTEGER)?;
        if !(0..DATABASES).contains(&db) {
            return Err("ERR DB index is out of range".into());
        }
        self.db = db;
        Ok(Reply::Simple("OK"))
    }

    /// Any user, password and name will do.
    fn hello(&mut self, version: Option<&[u8]>) -> Result<Reply, Reply> {
        self.is_resp3 = match version {
            None => self.is_resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
        };
        Ok(Reply::Map(vec![
            ("server", bulk(b"redis")),
            ("proto", int(if self.is_resp3 { 3 } else { 2 })),
            ("mode", bulk(b"standalone")),
            ("role", bulk(b"master")),
        ]))
    }

    pub(crate) fn error(&mut self, text: &str) {
        self.push(&text.into());
    }

    /// Encodes a reply in the protocol of the client.
    fn push(&mut self, reply: &Reply) {
        match reply {
            Reply::Null | Reply::NullArray if self.is_resp3 => self.line('_', ""),
            Reply::Null => self.line('$', -1),
            Reply::NullArray => self.line('*', -1),
            Reply::Simple(text) => self.line('+', text),
            Reply::Integer(number) => self.line(':', number),
            Reply::Error(text) => self.line('-', text.replace(['\r', '\n'], " ")),
            Reply::Bulk(bytes) => self.bulk(bytes),
            Reply::Array(items) => {
                self.line('*', items.len());
                items.iter().for_each(|item| self.push(item));
            }
            Reply::Map(fields) => {
                match self.is_resp3 {
                    true => self.line('%', fields.len()),
                    false => self.line('*', 2 * fields.len()),
                }
                for (name, value) in fields {
                    self.bulk(name.as_bytes());
                    self.push(value);
                }
            }
            // Its client gets a reply when it has waited.
            Reply::Later(_) => {}
        }
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.line('$', bytes.len());
        self.output.extend_from_slice(bytes);
        self.output.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, mark: char, text: impl Display) {
        // Memory takes all.
        let _ = write!(self.output, "{mark}{text}\r\n");
    }
}

fn int(number: impl TryInto<i64>) -> Reply {
    Reply::Integer(number.try_into().unwrap_or(i64::MAX))
}

fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_owned())
}

/// `fence, holds, lease-ms, waited-ms`
fn numbers(granted: &Granted) -> [Reply; 4] {
    [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms].map(int)
}

fn answers(reply: &GrantsReply) -> Reply {
    let answers = reply.answers.iter().map(shown_answer).collect();
    Reply::Array(vec![
        int(reply.cursor),
        int(reply.waited_ms),
        Reply::Array(answers),
    ])
}

fn shown_answer(answered: &Answered) -> Reply {
    let error = |error: String| vec![Reply::Bulk(error.into_bytes())];
    let (kind, more) = match &answered.answer {
        Answer::Granted(granted) => ("granted", numbers(granted).into()),
        Answer::Extended(lease_ms) => ("extended", vec![int(*lease_ms)]),
        Answer::TimedOut => ("timeout", Vec::new()),
        Answer::Withdrawn => ("withdrawn", Vec::new()),
        Answer::Rejected(rejected) => ("error", error(rejected.to_string())),
        Answer::Elsewhere(elsewhere) => ("error", error(elsewhere.to_string())),
    };
    let id = answered.request_id.as_deref().unwrap_or_default();
    let words = [kind.as_bytes(), id, &answered.name.key, &answered.owner].map(bulk);
    Reply::Array(words.into_iter().chain(more).collect())
}

fn shown_holder(holder: &Holder, clock: LeaseClock) -> Reply {
    Reply::Map(vec![
        ("owner", bulk(holder.owner())),
        ("fence", int(holder.fence())),
        ("holds", int(holder.holds())),
        ("lease-ms", int(holder.lease_ms(clock))),
        ("held-ms", int(holder.since().ms_until(clock.now))),
    ])
}

/// -1 = none.
fn shown_limit(limit: Limit) -> Reply {
    Reply::Integer(limit.get().map_or(-1, i64::from))
}

fn first_key(db: i32, words: &[&[u8]]) -> LockName {
    LockName::new(db, words.get(1).copied().unwrap_or_default())
}

/// The name of a command that exists and has that many words.
fn check_arity(words: &[&[u8]]) -> Result<Vec<u8>, Reply> {
    let command = words[0].to_ascii_uppercase();
    let arity = match &*command {
        b"DLOCK.ACQUIRE" | b"DLOCK.EXTEND" | b"DLOCK.GUARD" => 4..=usize::MAX,
        b"DLOCK.RELEASE" | b"DLOCK.GRANTS" => 3..=usize::MAX,
        b"SET" => 3..=3,
        b"DLOCK.OWNER" | b"DLOCK.INFO" | b"GET" | b"INCR" | b"SELECT" => 2..=2,
        b"DEL" | b"EXISTS" | b"CLIENT" => 2..=usize::MAX,
        b"PING" => 1..=2,
        b"HELLO" | b"INFO" | b"COMMAND" => 1..=usize::MAX,
        _ => return Err(unknown(words)),
    };
    if !arity.contains(&words.len()) {
        let command = String::from_utf8_lossy(&command).to_lowercase();
        return Err(format!("ERR wrong number of arguments for '{command}' command").into());
    }
    Ok(command)
}

fn unknown(words: &[&[u8]]) -> Reply {
    let (name, args) = (String::from_utf8_lossy(words[0]), words[1..].iter());
    let args: String = args
        .map(|arg| format!("'{}' ", String::from_utf8_lossy(arg)))
        .collect();
    let args = args.chars().take(MAX_SHOWN_CHARS).collect::<String>();
    format!("ERR unknown command '{name}', with args beginning with: {args}").into()
}

fn after(instant: Instant, time: Duration) -> Instant {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    Instant::from_micros(instant.as_micros().saturating_add(micros))
}
