//! A DLOCK server in the process of a test.
//!
//! [`TestServer`] needs no Redis. It speaks the protocol of Redis on a TCP socket of 127.0.0.1, and decides by the code
//! of the module itself, so that locks behave as they do on a real server: queues, leases, fencing tokens, inboxes. What
//! it leaves out are persistence, replication, clusters, transactions, scripts and access rights. Besides the commands of
//! DLOCK it serves PING, HELLO, SELECT, GET, SET, INCR, DEL and EXISTS; CLIENT and COMMAND reply, but do nothing, and
//! INFO has only the number of blocked clients.
//!
//! ```
//! use std::time::Duration;
//! use redis_dlock_client::testing::TestServer;
//!
//! # fn main() -> redis::RedisResult<()> {
//! let server = TestServer::start();
//! let mut connection = redis::Client::open(server.url())?.get_connection()?;
//! let acquire = |owner| redis::cmd("DLOCK.ACQUIRE").arg("orders:42").arg(owner).arg(30_000).to_owned();
//! let granted: Option<(u64, u64, u64, u64)> = acquire("alice").query(&mut connection)?;
//! assert!(granted.is_some());
//!
//! // Does the application notice that its lease has expired?
//! server.advance(Duration::from_secs(30));
//! let granted: Option<(u64, u64, u64, u64)> = acquire("bob").query(&mut connection)?;
//! assert!(granted.is_some());
//! # Ok(()) }
//! ```

pub(crate) mod commands;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_core::Call;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use commands::{Client, Server};

/// A server in this process, for tests. It ends when it is dropped.
#[derive(Debug)]
pub struct TestServer {
    port: u16,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

/// While this exists the server is paused: see [`TestServer::pause`].
#[derive(Debug)]
#[must_use = "the pause ends when this is dropped"]
pub struct Paused(Remote);

impl TestServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If the system has no free port, no more files or no more threads.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener
            .set_nonblocking(true)
            .expect("a socket that does not block");
        let port = listener.local_addr().expect("a socket has an address").port();
        let (alarm, wakeup) = UnixStream::pair().expect("a pair of sockets");
        wakeup
            .set_nonblocking(true)
            .expect("a socket that does not block");
        let (sender, jobs) = mpsc::channel();
        let event_loop = move || EventLoop {
            listener,
            wakeup,
            jobs,
            // Made in its thread: the core is for one thread only.
            server: Server::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            waiting: HashMap::new(),
            pauses: 0,
            is_over: false,
        };
        let thread = thread::Builder::new().name("dlock test server".to_owned());
        let thread = thread.spawn(move || event_loop().run());
        Self {
            port,
            remote: Remote {
                jobs: sender,
                alarm: alarm.into(),
            },
            thread: Some(thread.expect("a thread")),
        }
    }

    /// The address: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Breaks a lock, as an administrator does with DEL: its holders have lost it, and the next waiters are granted it,
    /// with larger fencing tokens. A key of another type is deleted too. In all databases.
    pub fn lose(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref().to_owned();
        self.remote.run(move |event_loop| event_loop.server.lose(&key));
    }

    /// Pauses the server until the guard is dropped: it reads nothing, answers nothing and grants nothing, like a process
    /// that hangs. The system still opens connections to it. Time passes: what was due meanwhile is done afterwards, after
    /// the requests that have arrived. Pauses may overlap.
    pub fn pause(&self) -> Paused {
        self.remote.run(|event_loop| event_loop.pauses += 1);
        Paused(self.remote.clone())
    }

    /// Closes all connections, like a network that fails. Requests that wait with BLOCK leave their queues; locks, queued
    /// requests and inboxes stay. The next connections are accepted.
    pub fn kill_connections(&self) {
        self.remote.run(EventLoop::kill_connections);
    }

    /// Sets the server's clock ahead. Leases, timeouts and inboxes end as if the time had passed, one after the other: if
    /// the lease of a holder ends, the next waiter's lease runs from that moment. An inbox for which a client waits with
    /// DLOCK.GRANTS meanwhile stays. One that nobody reads may take another 50 ms to end, as on a real server.
    ///
    /// The clocks of clients do not change.
    pub fn advance(&self, time: Duration) {
        self.remote
            .run(move |event_loop| event_loop.server.advance(time, event_loop.pauses > 0));
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.remote.run(|event_loop| event_loop.is_over = true);
        if let Some(thread) = self.thread.take() {
            // It has reported its own panic, if any.
            let _ = thread.join();
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.run(|event_loop| event_loop.pauses -= 1);
    }
}

type Job = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// Has the thread of the server do something.
#[derive(Clone, Debug)]
struct Remote {
    jobs: Sender<Job>,
    alarm: Arc<UnixStream>,
}

impl Remote {
    /// Returns when it is done, or when the server is gone.
    fn run(&self, job: impl FnOnce(&mut EventLoop) + Send + 'static) {
        let (done, is_done) = mpsc::channel::<()>();
        let job: Job = Box::new(move |event_loop| {
            job(event_loop);
            drop(done);
        });
        if self.jobs.send(job).is_ok() && (&*self.alarm).write_all(b"!").is_ok() {
            let _ = is_done.recv();
        }
    }
}

/// The most that is read from a connection before others have their turn.
const MAX_READ: usize = 16 * 1024;

/// The one thread of the server, as in Redis: a pass reads what has arrived, runs it, does what is due, and sends the
/// replies. So a client that has closed its connection before another one sends a request is not granted a lock by it.
struct EventLoop {
    listener: TcpListener,
    /// Readable if there are jobs.
    wakeup: UnixStream,
    jobs: Receiver<Job>,
    server: Server,
    /// By number, in the order in which they were opened.
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    /// The connections that wait for replies.
    waiting: HashMap<Call, u64>,
    pauses: usize,
    is_over: bool,
}

struct Connection {
    stream: TcpStream,
    client: Client,
    /// What was read and is not run yet.
    input: Vec<u8>,
    /// Its client waits for a reply: no further command is run.
    waits: Option<Call>,
    is_closed: bool,
}

impl EventLoop {
    fn run(mut self) {
        while !self.is_over {
            self.wait();
            // All of them: one wakeup may be for several.
            while self.wakeup.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
            while let Ok(job) = self.jobs.try_recv() {
                job(&mut self);
            }
            if self.pauses == 0 {
                self.serve();
            }
        }
    }

    /// Waits for jobs, connections and requests, or until something is due.
    fn wait(&mut self) {
        let mut sockets = vec![PollFd::new(&self.wakeup, PollFlags::IN)];
        let mut timeout = None;
        if self.pauses == 0 {
            sockets.push(PollFd::new(&self.listener, PollFlags::IN));
            sockets.extend(self.connections.values().map(Connection::interest));
            let due = self.server.time_until_due();
            timeout = due.and_then(|due| Timespec::try_from(due).ok());
        }
        // A wait that is interrupted is over early.
        let _ = poll(&mut sockets, timeout.as_ref());
    }

    fn serve(&mut self) {
        self.accept();
        for connection in self.connections.values_mut() {
            connection.receive();
        }
        // Who waits no longer, before somebody frees a lock that they would be granted.
        self.remove_closed(|connection| connection.waits.is_some());
        loop {
            for (number, connection) in &mut self.connections {
                let call = connection.run_commands(&mut self.server);
                self.waiting.extend(call.map(|call| (call, *number)));
            }
            self.server.read_clock();
            self.server.process_due();
            let woken = self.server.take_woken();
            if woken.is_empty() {
                break;
            }
            for call in woken {
                self.reply(call);
            }
        }
        for connection in self.connections.values_mut() {
            connection.send();
        }
        self.remove_closed(|_| true);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A connection that fails already is closed when it is read.
            let _ = stream.set_nodelay(true).and(stream.set_nonblocking(true));
            let connection = Connection {
                stream,
                client: Client::default(),
                input: Vec::new(),
                waits: None,
                is_closed: false,
            };
            self.last_connection += 1;
            self.connections.insert(self.last_connection, connection);
        }
    }

    fn reply(&mut self, call: Call) {
        let number = self.waiting.remove(&call);
        if let Some(connection) = number.and_then(|number| self.connections.get_mut(&number)) {
            connection.waits = None;
            self.server.reply(call, &mut connection.client);
        }
    }

    fn remove_closed(&mut self, among: impl Fn(&Connection) -> bool) {
        self.connections.retain(|_, connection| {
            let is_removed = connection.is_closed && among(connection);
            if is_removed && let Some(call) = connection.waits {
                self.waiting.remove(&call);
                self.server.lose_reader(call);
            }
            !is_removed
        });
    }

    fn kill_connections(&mut self) {
        self.accept();
        for connection in self.connections.values_mut() {
            connection.is_closed = true;
        }
        self.remove_closed(|_| true);
    }
}

impl Connection {
    /// What to wait for.
    fn interest(&self) -> PollFd<'_> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, !self.client.output.is_empty());
        PollFd::new(&self.stream, events)
    }

    fn receive(&mut self) {
        let mut bytes = [0; MAX_READ];
        match self.stream.read(&mut bytes) {
            Ok(read) => {
                self.input.extend_from_slice(&bytes[..read]);
                self.is_closed = read == 0;
            }
            Err(error) => self.is_closed = error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Runs the commands that have arrived, up to one for which the client waits: returns its call.
    fn run_commands(&mut self, server: &mut Server) -> Option<Call> {
        let mut rest = &*self.input;
        let former = self.waits;
        while self.waits.is_none() {
            match parse(&mut rest) {
                Ok(Some(words)) if words.is_empty() => {}
                Ok(Some(words)) => self.waits = server.run(&mut self.client, &words),
                Ok(None) => break,
                Err(ProtocolError) => {
                    self.client
                        .error("ERR Protocol error: an array of bulk strings is expected");
                    self.is_closed = true;
                    break;
                }
            }
        }
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        self.waits.filter(|_| former.is_none())
    }

    fn send(&mut self) {
        let output = &mut self.client.output;
        while !output.is_empty() {
            match self.stream.write(output) {
                Ok(sent) => drop(output.drain(..sent)),
                Err(error) => {
                    self.is_closed |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }
}

pub(crate) struct ProtocolError;

/// Takes one command off the input: an array of strings. `None`: it is not complete.
pub(crate) fn parse<'a>(input: &mut &'a [u8]) -> Result<Option<Vec<&'a [u8]>>, ProtocolError> {
    let mut rest = *input;
    let Some(count) = parse_number(&mut rest, b'*')? else {
        return Ok(None);
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(len) = parse_number(&mut rest, b'$')? else {
            return Ok(None);
        };
        let Some((word, after)) = rest.split_at_checked(len) else {
            return Ok(None);
        };
        let Some((_, after)) = after.split_at_checked(b"\r\n".len()) else {
            return Ok(None);
        };
        words.push(word);
        rest = after;
    }
    *input = rest;
    Ok(Some(words))
}

/// Takes a line off: a mark and a number.
fn parse_number(rest: &mut &[u8], mark: u8) -> Result<Option<usize>, ProtocolError> {
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let line = rest[..end]
        .strip_prefix(&[mark])
        .and_then(|line| line.strip_suffix(b"\r"));
    let number = line.and_then(|line| str::from_utf8(line).ok()?.parse().ok());
    *rest = &rest[end + 1..];
    number.map(Some).ok_or(ProtocolError)
}
