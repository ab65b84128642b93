//! The server, and the connections that lead to it.

mod faults;
mod pipe;

pub(super) use faults::Fate;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_core::Call;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult};
use tokio::sync::Notify;

use super::counts::Counts;
use super::runtimes::handle_of;
use super::{elapsed, tell};
use crate::testing::commands::{Client, Server};
use crate::testing::parse;
use pipe::{Pipe, Stream, lock};

/// Late copies arrive within this time after their connection was lost.
const LATE: Duration = Duration::from_millis(400);
/// One that its client closes was given up up to a fifth of the response timeout before.
const LATE_AFTER_CLOSE: Duration = Duration::from_millis(200);

thread_local! {
    static NET: RefCell<Option<Net>> = const { RefCell::new(None) };
}

/// The network, as a client sees it.
#[derive(Clone)]
pub(crate) struct Network {
    pub process: usize,
}

type Command = Vec<Vec<u8>>;

pub(super) struct Net {
    pub server: Server,
    pub counts: Counts,
    random: fastrand::Rng,
    /// The longest time that a message takes, one way.
    way: Duration,
    routes: Vec<Route>,
    connections: BTreeMap<u32, Connection>,
    last_connection: u32,
    /// Who waits for the reply to a call. `None`: its connection is lost.
    waiting: BTreeMap<Call, Option<u32>>,
    /// What lost connections still deliver.
    late: BTreeMap<(Duration, u64), Command>,
    last_late: u64,
    /// When the server learns that connections are lost.
    lost_readers: Vec<(Duration, Call)>,
    /// Whoever is queued until then may be turned away at once.
    turns_away_until: Duration,
    /// Where somebody was turned away since the last check.
    pub turned_away: BTreeSet<Vec<u8>>,
    wakeup: Arc<Notify>,
}

/// The way from a process to the server.
#[derive(Clone, Default)]
struct Route {
    refused_until: Duration,
    stalled_until: Duration,
    /// Commands are rejected with this error until then.
    rejected: Option<(Duration, &'static str)>,
    /// When its connections were cut, or its requests turned away, the last three times, the last time first.
    disturbed: [Duration; 3],
    /// Its last call of GRANTS: the inbox and the cursor.
    inbox: Option<(Vec<u8>, Vec<u8>)>,
}

struct Connection {
    process: usize,
    pipe: Arc<Mutex<Pipe>>,
    client: Client,
    /// On their way, with the times when they arrive.
    requests: VecDeque<(Duration, Command)>,
    replies: VecDeque<(Duration, Vec<u8>)>,
    waits: Option<Call>,
    stalled_until: Duration,
}

pub(super) fn install(net: Net) {
    NET.set(Some(net));
}

pub(super) fn remove() {
    NET.set(None);
}

pub(super) fn with<T>(work: impl FnOnce(&mut Net) -> T) -> T {
    NET.with_borrow_mut(|net| work(net.as_mut().expect("a network")))
}

impl Network {
    pub(crate) async fn connect(&self, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        let stream = with(|net| net.accept(self.process))?;
        let info = info();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
        // It ends when the last copy of the connection is dropped.
        handle_of(&tokio::runtime::Handle::current()).spawn(driver);
        Ok(connection)
    }
}

fn info() -> ConnectionInfo {
    let info = "redis://simulated".into_connection_info().expect("an address");
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    info.set_redis_settings(settings)
}

impl Net {
    pub fn new(random: fastrand::Rng, processes: usize, way: Duration) -> Self {
        Self {
            server: Server::new(),
            counts: Counts::default(),
            random,
            way,
            routes: vec![Route::default(); processes],
            connections: BTreeMap::new(),
            last_connection: 0,
            waiting: BTreeMap::new(),
            late: BTreeMap::new(),
            last_late: 0,
            lost_readers: Vec::new(),
            turns_away_until: Duration::ZERO,
            turned_away: BTreeSet::new(),
            wakeup: Arc::default(),
        }
    }

    /// Notified when there is something to do.
    pub fn wakeup(&self) -> Arc<Notify> {
        Arc::clone(&self.wakeup)
    }

    fn accept(&mut self, process: usize) -> RedisResult<Stream> {
        if self.routes[process].refused_until > elapsed() {
            tell(|| format!("process {process} is refused a connection"));
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        self.last_connection += 1;
        let pipe: Arc<Mutex<Pipe>> = Arc::default();
        let connection = Connection {
            process,
            pipe: Arc::clone(&pipe),
            client: Client::default(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            waits: None,
            stalled_until: Duration::ZERO,
        };
        tell(|| format!("connection {} of process {process}", self.last_connection));
        self.connections.insert(self.last_connection, connection);
        let wakeup = self.wakeup();
        Ok(Stream { pipe, wakeup })
    }

    // What happens by itself.

    /// Delivers what arrives now, and has the server do what is due.
    pub fn run(&mut self) {
        let mut goes_on = true;
        while goes_on {
            self.collect();
            goes_on = self.deliver_requests() | self.deliver_late();
            self.server.read_clock();
            self.server.process_due();
            for call in self.server.take_woken() {
                self.reply(call);
                goes_on = true;
            }
            self.deliver_replies();
        }
    }

    /// When there is something to do.
    pub fn due(&mut self) -> Duration {
        let now = elapsed();
        let mut due = now + self.server.time_until_due().unwrap_or(Duration::MAX / 2);
        for connection in self.connections.values() {
            let route = &self.routes[connection.process];
            let stalled_until = connection.stalled_until.max(route.stalled_until);
            let requests = connection.requests.front().filter(|_| connection.waits.is_none());
            let times = [
                requests.map(|(at, _)| at),
                connection.replies.front().map(|(at, _)| at),
            ];
            for at in times.into_iter().flatten() {
                due = due.min((*at).max(stalled_until));
            }
        }
        let late = self.late.keys().map(|(at, _)| *at);
        due = late
            .chain(self.lost_readers.iter().map(|(at, _)| *at))
            .fold(due, Duration::min);
        let faults = self.routes.iter().flat_map(|route| {
            [
                Some(route.refused_until),
                Some(route.stalled_until),
                route.rejected.map(|(until, _)| until),
            ]
        });
        let stalls = self
            .connections
            .values()
            .map(|connection| Some(connection.stalled_until));
        faults
            .chain(stalls)
            .flatten()
            .filter(|until| *until > now)
            .fold(due, Duration::min)
    }

    /// What clients have sent, and which connections they have closed.
    fn collect(&mut self) {
        let mut closed = Vec::new();
        for (number, connection) in &mut self.connections {
            let (sent, is_closed) = {
                let mut pipe = lock(&connection.pipe);
                (std::mem::take(&mut pipe.sent), pipe.is_closed)
            };
            let mut rest = &*sent;
            while let Ok(Some(words)) = parse(&mut rest) {
                tell(|| format!("{number}: {}", shown(words.iter().copied())));
                let at = elapsed() + random_ms(&mut self.random, self.way);
                let at = connection.requests.back().map_or(at, |(last, _)| at.max(*last));
                let command: Command = words.into_iter().map(<[u8]>::to_vec).collect();
                connection.requests.push_back((at, command));
            }
            assert!(rest.is_empty(), "a client sends whole commands");
            if is_closed {
                closed.push(*number);
            }
        }
        for number in closed {
            tell(|| format!("{number}: closed by its client"));
            let fate = self.random_fate();
            self.lose(number, fate, LATE_AFTER_CLOSE);
        }
    }

    fn deliver_requests(&mut self) -> bool {
        let now = elapsed();
        let mut delivered = false;
        for number in self.connections.keys().copied().collect::<Vec<_>>() {
            while let Some(connection) = self.connections.get_mut(&number)
                && connection.waits.is_none()
                && connection
                    .stalled_until
                    .max(self.routes[connection.process].stalled_until)
                    <= now
                && let Some(command) = take_due(&mut connection.requests, now)
            {
                self.run_command(number, &command);
                delivered = true;
            }
        }
        delivered
    }

    fn run_command(&mut self, number: u32, command: &Command) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let route = &mut self.routes[connection.process];
        if words[0] == b"DLOCK.GRANTS" {
            route.inbox = Some((command[1].clone(), command[2].clone()));
        }
        let rejected = route.rejected.filter(|(until, _)| *until > elapsed());
        match rejected.filter(|_| words[0].starts_with(b"DLOCK.")) {
            Some((_, error)) => connection.client.error(error),
            None => connection.waits = self.server.run(&mut connection.client, &words),
        }
        if let Some(call) = connection.waits {
            self.waiting.insert(call, Some(number));
        }
        let output = std::mem::take(&mut connection.client.output);
        self.counts.note_command(&words, &output);
        let is_queued = words[0] == b"DLOCK.ACQUIRE" && output.starts_with(b"*1");
        self.send_reply(number, output);
        if is_queued && self.turns_away_until > elapsed() && self.random.bool() {
            self.turn_away(words[1]);
        }
    }

    fn send_reply(&mut self, number: u32, reply: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&number)
            && !reply.is_empty()
        {
            tell(|| format!("{number}: -> {}", shown([&*reply])));
            let at = elapsed() + random_ms(&mut self.random, self.way);
            let at = connection.replies.back().map_or(at, |(last, _)| at.max(*last));
            connection.replies.push_back((at, reply));
        }
    }

    /// A call that waited has its reply.
    fn reply(&mut self, call: Call) {
        let number = self.waiting.remove(&call).flatten();
        match number.and_then(|number| self.connections.get_mut(&number)) {
            Some(connection) => {
                connection.waits = None;
                self.server.reply(call, &mut connection.client);
                let output = std::mem::take(&mut connection.client.output);
                self.counts.note_command(&[b"DLOCK.GRANTS"], &output);
                self.send_reply(number.unwrap_or_default(), output);
            }
            // Nobody receives it.
            None => self.server.reply(call, &mut Client::default()),
        }
    }

    fn deliver_late(&mut self) -> bool {
        let now = elapsed();
        let mut delivered = false;
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            let command = entry.remove();
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            tell(|| format!("late: {}", shown(words.iter().copied())));
            match words[0] {
                b"DLOCK.ACQUIRE" => self.counts.note("late ACQUIRE"),
                _ => self.counts.note("other late copy"),
            }
            self.run_for_nobody(&words);
            delivered = true;
        }
        let mut lost = std::mem::take(&mut self.lost_readers);
        lost.retain(|(at, call)| {
            let is_due = *at <= now;
            if is_due && self.waiting.remove(call).is_some() {
                self.server.lose_reader(*call);
            }
            !is_due
        });
        self.lost_readers = lost;
        delivered
    }

    fn run_for_nobody(&mut self, words: &[&[u8]]) {
        let call = self.server.run(&mut Client::default(), words);
        if let Some(call) = call {
            self.server.lose_reader(call);
        }
    }

    fn deliver_replies(&mut self) {
        let now = elapsed();
        for connection in self.connections.values_mut() {
            if connection
                .stalled_until
                .max(self.routes[connection.process].stalled_until)
                > now
            {
                continue;
            }
            while let Some(reply) = take_due(&mut connection.replies, now) {
                let mut pipe = lock(&connection.pipe);
                pipe.received.extend_from_slice(&reply);
                pipe.wake();
            }
        }
    }
}

fn shown<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> String {
    let words = words
        .into_iter()
        .map(|word| String::from_utf8_lossy(word).replace("\r\n", " "));
    words.collect::<Vec<_>>().join(" ")
}

/// In whole milliseconds, as timers are.
fn random_ms(random: &mut fastrand::Rng, longest: Duration) -> Duration {
    Duration::from_millis(random.u64(..=longest.as_millis() as u64))
}

/// What arrives by now.
fn take_due<T>(queue: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front().map(|(_, first)| first)
}
