//! The commands, on the core: what the module is in a Redis server.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;
use std::time::{Duration, Instant as SystemInstant, SystemTime};

use dlock_core::{
    Acquire, Acquired, Answer, Answered, Call, Caller, Effects, Environment, Extend, Granted, Grants,
    GrantsReply, Guard, Holder, Holds, InboxStep, Inputs, Instant, LeaseClock, Limit, Lock, LockName, Policy,
    Queue, Received, Release, Role, ServerState, Timeout, Transition, Waiter, WallClock,
};

/// `dlock.max-lease-ms`
const MAX_LEASE_MS: u64 = 600_000;
/// The databases of a server.
const DATABASES: i32 = 16;
/// The waiters that DLOCK.INFO shows.
const MAX_SHOWN: usize = 128;
/// The one user.
const USER: &[u8] = b"default";
/// The longest text of an error about an unknown command.
const MAX_SHOWN_CHARS: usize = 128;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
/// For a GRANTS that another one has replaced.
const SUPERSEDED: &str =
    "UNBLOCKED another call reads this inbox now, or this server is a replica now: call again";

/// What commands know of a connection.
#[derive(Default)]
pub(crate) struct Client {
    db: i32,
    is_resp3: bool,
    /// The replies that are not sent yet.
    pub(crate) output: Vec<u8>,
}

/// The keys, queues and inboxes of a server.
pub(crate) struct Server {
    state: ServerState,
    keys: HashMap<LockName, Value>,
    /// When to visit each lock.
    visits: BTreeSet<(Instant, LockName)>,
    /// The calls that waited and get their replies now.
    woken: Vec<Call>,
    effects: Effects,
    /// When the clock showed zero, and how far it has been set ahead since.
    zero: SystemInstant,
    ahead: Duration,
    /// What the clock showed when it was read last: once for each command.
    now: Instant,
}

enum Value {
    /// A lock, and when to visit it: its first lease ends.
    Lock(Lock, Instant),
    Text(Vec<u8>),
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
        let mut state = ServerState::default();
        state.set_policy(Policy {
            max_waiters_per_lock: 10_000,
            max_waiters: 1_000_000,
            max_inboxes: 10_000,
            max_holders: Some(10_000),
            detect_deadlocks: true,
            ..Policy::default()
        });
        Self {
            state,
            keys: HashMap::new(),
            visits: BTreeSet::new(),
            woken: Vec::new(),
            effects: Effects::default(),
            zero: SystemInstant::now(),
            ahead: Duration::ZERO,
            now: Instant::default(),
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
        Ok(match &*command {
            b"DLOCK.ACQUIRE" => self.acquire(&name, &Acquire::parse(args, MAX_LEASE_MS)?)?,
            b"DLOCK.RELEASE" => {
                let request = Release::parse(args)?;
                int(self.decide(&name, |transition| transition.release(&request))?)
            }
            b"DLOCK.EXTEND" => {
                let request = Extend::parse(args, MAX_LEASE_MS)?;
                int(self.decide(&name, |transition| transition.extend(&request))?)
            }
            b"DLOCK.GRANTS" => self.grants(client.db, &Grants::parse(words[1], args)?)?,
            b"DLOCK.GUARD" => self.guard(&name, &Guard::parse(args)?, &words[4..])?,
            b"DLOCK.OWNER" => {
                let clock = self.state.begin_read(Role::Primary, self.now);
                let holders = self.holders(&name, clock)?;
                holders.first().map_or(Reply::Null, |holder| bulk(holder.owner()))
            }
            b"DLOCK.INFO" => self.info(&name)?,
            b"HELLO" => client.hello(words.get(1).copied())?,
            b"SELECT" => client.select(words[1])?,
            b"CLIENT" => Reply::Simple("OK"),
            b"INFO" => bulk(b""),
            b"COMMAND" => Reply::Array(Vec::new()),
            _ => self.plain(client.db, &command, words)?,
        })
    }

    fn acquire(&mut self, name: &LockName, request: &Acquire<'_>) -> Result<Reply, Reply> {
        // An expired lease must not look like a deadlock, and a retry must not find a grant that is to be rolled back.
        self.serve_queues();
        let acquired = self.decide(name, |transition| transition.acquire(request, USER, true))?;
        Ok(match acquired {
            Acquired::Granted(granted) => Reply::Array(numbers(&granted).into()),
            Acquired::NotGranted => Reply::NullArray,
            Acquired::Queued(ahead) => match self.effects.parked {
                Some(call) => Reply::Later(call),
                None => Reply::Array(vec![int(ahead)]),
            },
        })
    }

    fn grants(&mut self, db: i32, request: &Grants<'_>) -> Result<Reply, Reply> {
        let caller = Caller { db, user: USER };
        let (reply, former) = match self.state.receive(request, caller, &inputs(self.now))? {
            Received::Waits { call, former } => (Reply::Later(call), former),
            Received::Replied { reply, former } => (answers(&reply), former),
        };
        self.woken.extend(former);
        Ok(reply)
    }

    fn guard(&mut self, name: &LockName, request: &Guard<'_>, inner: &[&[u8]]) -> Result<Reply, Reply> {
        if let Some(command) = inner.first() {
            check_guarded(&command.to_ascii_uppercase())?;
        }
        let (clock, free) = (self.state.begin_read(Role::Primary, self.now), Lock::default());
        let lock = match self.keys.get(name) {
            Some(Value::Lock(lock, _)) => lock,
            // Another type too: for the caller the lock is lost either way.
            Some(Value::Text(_)) | None => &free,
        };
        let lease_ms = request.check(lock, clock)?;
        if inner.is_empty() {
            return Ok(int(lease_ms));
        }
        self.plain(name.db, &check_arity(inner)?, inner)
    }

    fn info(&mut self, name: &LockName) -> Result<Reply, Reply> {
        let clock = self.state.begin_read(Role::Primary, self.now);
        let holders = self.holders(name, clock)?;
        let queue = self.state.wait_table.queue(name.as_ref());
        if holders.is_empty() && queue.is_none() {
            return Ok(Reply::Null);
        }
        let limit = holders.iter().map(|holder| holder.limit()).min();
        let holders = holders.into_iter().map(|holder| shown_holder(holder, clock));
        let waiters = queue.into_iter().flat_map(Queue::iter).take(MAX_SHOWN);
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
            ("waited-ms", int(waiter.since().ms_until(self.now))),
            ("timeout-ms", timeout_ms),
        ];
        if self.state.inboxes.has_name(waiter.inbox()) {
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
                self.remove(&name);
                self.keys.insert(name, Value::Text(words[2].to_owned()));
                Reply::Simple("OK")
            }
            b"INCR" => {
                let text = str::from_utf8(self.text(&name)?.unwrap_or(b"0")).ok();
                let number = text.and_then(|text| text.parse::<i64>().ok()?.checked_add(1));
                let number = number.ok_or(NOT_INTEGER)?;
                self.keys
                    .insert(name, Value::Text(number.to_string().into_bytes()));
                int(number)
            }
            b"EXISTS" => int(keys.filter(|name| self.keys.contains_key(name)).count()),
            b"DEL" => int(keys.filter(|name| self.remove(name)).count()),
            _ => return Err(unknown(words)),
        })
    }

    fn text(&self, name: &LockName) -> Result<Option<&[u8]>, Reply> {
        match self.keys.get(name) {
            Some(Value::Lock(..)) => Err(WRONG_TYPE.into()),
            Some(Value::Text(text)) => Ok(Some(text)),
            None => Ok(None),
        }
    }

    fn holders(&self, name: &LockName, clock: LeaseClock) -> Result<Vec<&Holder>, Reply> {
        match self.keys.get(name) {
            Some(Value::Lock(lock, _)) => Ok(lock.live_holders(clock).collect()),
            Some(Value::Text(_)) => Err(WRONG_TYPE.into()),
            None => Ok(Vec::new()),
        }
    }

    /// Removes a key. Those who wait for the lock are served next. Returns whether the key was there.
    fn remove(&mut self, name: &LockName) -> bool {
        let former = self.keys.remove(name);
        if let Some(Value::Lock(_, visit)) = &former {
            self.visits.remove(&(*visit, name.clone()));
        }
        self.state
            .wait_table
            .schedule(name.as_ref(), Instant::DISTANT_PAST);
        former.is_some()
    }

    /// Removes a key from all databases.
    pub(crate) fn lose(&mut self, key: &[u8]) {
        for db in 0..DATABASES {
            self.remove(&LockName::new(db, key));
        }
    }

    /// Runs a transition, stores its lock, and puts its answers into their inboxes.
    fn decide<R>(
        &mut self,
        name: &LockName,
        transition: impl FnOnce(&mut Transition<'_>) -> Result<R, dlock_core::Error>,
    ) -> Result<R, Reply> {
        let (mut lock, visit) = match self.keys.remove(name) {
            Some(Value::Lock(lock, visit)) => (lock, Some(visit)),
            Some(text) => {
                self.keys.insert(name.clone(), text);
                return Err(WRONG_TYPE.into());
            }
            None => (Lock::default(), None),
        };
        let inputs = inputs(self.now);
        let mut begun = self
            .state
            .begin(&inputs, name.as_ref(), &mut lock, &mut self.effects);
        let outcome = transition(&mut begun);
        let next = lock.first_lease_end(self.effects.clock);
        if next != visit {
            visit.map(|at| self.visits.remove(&(at, name.clone())));
            next.map(|at| self.visits.insert((at, name.clone())));
        }
        if let Some(at) = next {
            self.keys.insert(name.clone(), Value::Lock(lock, at));
        }
        self.deliver();
        Ok(outcome?)
    }

    fn deliver(&mut self) {
        self.state.deliver(&mut self.effects);
        self.woken.append(&mut self.effects.calls);
    }

    /// Does what is due: timeouts, expired leases, inboxes that end, grants whose clients are gone.
    pub(crate) fn process_due(&mut self) {
        while let Some(step) = self.state.process_inboxes(self.now) {
            if let InboxStep::Reply(call) = step {
                self.woken.push(call);
            }
        }
        self.serve_queues();
        while let Some((at, name)) = self.visits.first()
            && *at <= self.now
        {
            // A lock, which is due later afterwards, or gone.
            let _ = self.decide(&name.clone(), |transition| {
                transition.expire_holders();
                Ok(())
            });
        }
    }

    fn serve_queues(&mut self) {
        while let Some(grant) = self.state.inboxes.next_undelivered() {
            if self.state.inboxes.claim(&grant) {
                let id = grant.request_id.as_deref();
                let request = Release {
                    owner: &grant.owner,
                    fence: Some(grant.fence),
                    holds: id.map_or(Holds::One, Holds::ById),
                };
                // A key of another type has no grant.
                let _ = self.decide(&grant.name, |transition| Ok(transition.rollback_grant(&request)));
            }
        }
        while let Some(name) = self.state.wait_table.next_due(self.now) {
            let served = self.decide(&name, |transition| {
                transition.on_timer();
                Ok(())
            });
            if let Err(Reply::Error(error)) = served {
                self.state
                    .turn_away_waiters(name.as_ref(), &error, self.now, &mut self.effects);
                self.deliver();
            }
        }
    }

    /// The calls that get their replies now.
    pub(crate) fn take_woken(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.woken)
    }

    /// Replies to a call that waited.
    pub(crate) fn reply(&mut self, call: Call, client: &mut Client) {
        match self.state.inboxes.reply(call, self.now) {
            Some(dlock_core::Reply::Grants(reply)) => client.push(&answers(&reply)),
            Some(dlock_core::Reply::Answer(answer)) => client.push(&match answer {
                Answer::Granted(granted) => Reply::Array(numbers(&granted).into()),
                Answer::TimedOut | Answer::Withdrawn => Reply::NullArray,
                Answer::Rejected(error) => error.into(),
                Answer::Elsewhere(error) => error.into(),
            }),
            None => client.error(SUPERSEDED),
        }
    }

    /// The client of a call is gone.
    pub(crate) fn lose_reader(&mut self, call: Call) {
        self.state.lose_reader(call, self.now);
    }

    /// How long until something is due.
    pub(crate) fn time_until_due(&mut self) -> Option<Duration> {
        self.read_clock();
        let micros = self.next_due()?.as_micros().saturating_sub(self.now.as_micros());
        Some(Duration::from_micros(micros.try_into().unwrap_or(0)))
    }

    fn next_due(&self) -> Option<Instant> {
        let (queues, inboxes) = (&self.state.wait_table, &self.state.inboxes);
        let rollback = (inboxes.undelivered() > 0).then_some(Instant::DISTANT_PAST);
        let visit = self.visits.first().map(|(at, _)| *at);
        let due = [rollback, visit, queues.next_wakeup(), inboxes.next_wakeup()];
        due.into_iter().flatten().min()
    }

    /// The holders of a lock, and its queue.
    #[cfg(test)]
    pub(crate) fn lock(&self, key: &[u8]) -> (Vec<&Holder>, Option<&Queue>) {
        let name = LockName::new(0, key);
        let holders = self.holders(&name, self.state.clock(self.now));
        (
            holders.unwrap_or_default(),
            self.state.wait_table.queue(name.as_ref()),
        )
    }

    #[cfg(test)]
    pub(crate) fn has_inbox(&self, name: &[u8]) -> bool {
        self.state.inboxes.find(name).is_some()
    }

    /// Those who wait for a lock are told to ask elsewhere.
    #[cfg(test)]
    pub(crate) fn turn_away(&mut self, key: &[u8], error: &str) {
        let name = LockName::new(0, key);
        self.state
            .turn_away_waiters(name.as_ref(), error, self.now, &mut self.effects);
        self.deliver();
    }

    pub(crate) fn read_clock(&mut self) {
        let uptime = self.zero.elapsed();
        #[cfg(test)]
        let uptime = crate::simulation::server_uptime().unwrap_or(uptime);
        self.now = after(Instant::default(), uptime.saturating_add(self.ahead));
    }

    /// Sets the clock ahead. Unless the server is paused, it stops wherever something is due: so the lease of the next
    /// waiter begins when that of the holder ends.
    pub(crate) fn advance(&mut self, time: Duration, is_paused: bool) {
        self.read_clock();
        let end = after(self.now, time);
        self.ahead = self.ahead.saturating_add(time);
        while let Some(at) = self.next_due().filter(|at| *at <= end && !is_paused) {
            self.now = self.now.max(at);
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

/// Rejects what GUARD does not run.
fn check_guarded(command: &[u8]) -> Result<(), Reply> {
    let reason = match command {
        _ if command.starts_with(b"DLOCK.") => "DLOCK commands: send them on their own",
        b"SELECT" | b"READONLY" | b"READWRITE" | b"ASKING" | b"WAIT" | b"WAITAOF" => {
            "commands about the connection: send them on their own, before or after"
        }
        _ => return Ok(()),
    };
    Err(format!("ERR DLOCK.GUARD does not run {reason}").into())
}

fn after(instant: Instant, time: Duration) -> Instant {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    Instant::from_micros(instant.as_micros().saturating_add(micros))
}

fn inputs(now: Instant) -> Inputs<'static> {
    Inputs {
        now,
        role: Role::Primary,
        slot: None,
        must_encode: false,
        environment: &Process,
    }
}

/// Wall clock and randomness of this process.
struct Process;

impl Environment for Process {
    fn wall_clock(&self) -> WallClock {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        WallClock::from_unix_ms(time.unwrap_or_default().as_millis() as u64)
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}
