//! The one thread: it owns the connections, and drives the session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{process, thread};

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::{Backoff, BootInstant};
use crate::command::ProcessName;
use crate::error::Error;
use crate::events::Hook;
use crate::reader::{InboxNews, Readers};
use crate::request::{Exit, Operation, Pending};
use crate::server::{Connection, Server, map_error, should_reconnect};
use crate::session::{Sending, Session, SessionSettings};

/// The thread looks at its clock at least this often: timers do not count suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How many operations are taken at once.
const BATCH: usize = 256;
/// How many times the response timeout a caller waits for a server that does not reply.
const ATTEMPTS: u32 = 3;

/// The way to the thread, for locks and guards.
pub(crate) struct Handle {
    operations: UnboundedSender<Operation>,
    numbers: Arc<AtomicU64>,
    pub process: Arc<ProcessName>,
    pub exit: Arc<Exit>,
    /// The process that has the thread.
    pid: u32,
    pub label: Arc<str>,
    response_timeout: Duration,
}

/// What happens in the tasks of the thread.
pub(crate) enum Message {
    Connected(RedisResult<Connection>),
    /// The connection of this generation was lost.
    Disconnected(u64),
    Replies {
        generation: u64,
        replies: Vec<(Sending, Result<Value, Error>)>,
        is_lost: bool,
    },
    #[cfg(feature = "replicas")]
    Acknowledged(u64, Result<(), Error>),
}

enum Link {
    Idle,
    Connecting,
    Connected(Connection),
}

struct Driver {
    session: Session,
    server: Server,
    label: Arc<str>,
    response_timeout: Duration,
    link: Link,
    /// How many connections there were.
    generation: u64,
    backoff: Backoff,
    messages: UnboundedSender<Message>,
    news: UnboundedSender<(u64, InboxNews)>,
    readers: Option<JoinHandle<()>>,
    exit: Arc<Exit>,
    #[cfg(feature = "replicas")]
    wait_connections: crate::replicas::WaitConnections,
}

impl Handle {
    /// Starts a thread for one server.
    pub fn start(server: Server, response_timeout: Duration, hook: Hook) -> Result<Self, Error> {
        let (handle, driver) = Self::new(server, response_timeout, hook);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| no_thread(&error))?;
        // A task of the runtime wakes others of its thread without a system call, unlike the future of `block_on`.
        let run = move || runtime.block_on(async move { tokio::spawn(driver).await });
        let thread = thread::Builder::new().name("dlock".into()).spawn(run);
        thread.map_err(|error| no_thread(&error))?;
        Ok(handle)
    }

    /// What its thread is to run goes with it.
    pub fn new(
        server: Server,
        response_timeout: Duration,
        hook: Hook,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (operations, requested) = unbounded_channel();
        let numbers = Arc::new(AtomicU64::new(0));
        let handle = Self {
            operations,
            numbers: Arc::clone(&numbers),
            process: Arc::new(ProcessName::new()),
            exit: Arc::default(),
            pid: process::id(),
            label: server.label(),
            response_timeout,
        };
        let session = Session::new(SessionSettings {
            process: Arc::clone(&handle.process),
            numbers,
            hook,
            exit: Arc::clone(&handle.exit),
            is_cluster: server.is_cluster(),
            patience: response_timeout * ATTEMPTS,
        });
        let (label, exit) = (Arc::clone(&handle.label), Arc::clone(&handle.exit));
        let driver = async move {
            Driver::new(session, server, label, response_timeout, exit)
                .run(requested)
                .await;
        };
        (handle, driver)
    }

    /// A number that no other acquisition of this process has.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A release is to be sent: see [`Exit::begin`].
    pub fn begin_release(&self) -> Pending {
        self.exit.begin()
    }

    /// How long a caller waits for a server that does not reply.
    pub fn patience(&self) -> Duration {
        self.response_timeout * ATTEMPTS
    }

    /// Whether this is the process that has the thread.
    pub fn is_at_home(&self) -> bool {
        process::id() == self.pid
    }

    /// That this is the process that has the thread.
    pub fn check_process(&self) -> Result<(), Error> {
        match self.is_at_home() {
            true => Ok(()),
            false => Err(Error::Invalid(
                "this process was forked after the locks were opened: open them in each process".into(),
            )),
        }
    }

    pub fn send(&self, operation: Operation) {
        // The thread outlives its handles, except for those in a forked process: see `is_at_home`.
        let _ = self.operations.send(operation);
    }

    /// Asks the thread for something, and awaits the reply.
    pub async fn ask<T>(
        &self,
        operation: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Operation,
    ) -> Result<T, Error> {
        self.check_process()?;
        let (reply, outcome) = oneshot::channel();
        self.send(operation(reply));
        match outcome.await {
            Ok(outcome) => outcome.map_err(|error| error.at(&self.label)),
            Err(_) => Err(Error::Invalid("the thread of the locks has panicked".into())),
        }
    }
}

impl Handle {
    /// Sends a command on the connection for requests.
    pub async fn query(&self, command: Cmd, is_idempotent: bool, within: Duration) -> Result<Value, Error> {
        let question = |reply| Operation::Query {
            command,
            is_idempotent,
            within,
            reply,
        };
        self.ask(question).await
    }
}

impl Drop for Handle {
    /// The last handle of a program that is about to end waits a little for its releases, outside of async code.
    fn drop(&mut self) {
        if self.is_at_home() && runtime::Handle::try_current().is_err() {
            self.exit.wait();
        }
    }
}

pub(crate) fn no_thread(error: &io::Error) -> Error {
    Error::from(RedisError::from(io::Error::new(error.kind(), error.to_string())))
}

impl Driver {
    fn new(
        session: Session,
        server: Server,
        label: Arc<str>,
        response_timeout: Duration,
        exit: Arc<Exit>,
    ) -> Self {
        // Replaced by those that this thread receives from.
        let ((messages, _), (news, _)) = (unbounded_channel(), unbounded_channel());
        Self {
            session,
            server,
            label,
            response_timeout,
            link: Link::Idle,
            generation: 0,
            backoff: Backoff::default(),
            messages,
            news,
            readers: None,
            exit,
            #[cfg(feature = "replicas")]
            wait_connections: crate::replicas::WaitConnections::default(),
        }
    }

    /// Until all handles are gone and nothing is left to do.
    async fn run(mut self, mut operations: UnboundedReceiver<Operation>) {
        let (messages, mut received) = unbounded_channel();
        let (news, mut read) = unbounded_channel();
        (self.messages, self.news) = (messages, news);
        let mut batch = Vec::with_capacity(BATCH);
        let mut has_handles = true;
        loop {
            self.pump();
            if !has_handles && self.session.is_over() {
                return;
            }
            let wakes_at = self.sleeps_until();
            tokio::select! {
                count = operations.recv_many(&mut batch, BATCH), if has_handles => {
                    has_handles = count > 0;
                    let now = BootInstant::now();
                    for operation in batch.drain(..) {
                        self.session.on_operation(operation, now);
                    }
                }
                Some(message) = received.recv() => self.on_message(message),
                Some((epoch, news)) = read.recv() => self.on_inbox(epoch, news),
                () = sleep_until(wakes_at) => {}
            }
            while let Ok(message) = received.try_recv() {
                self.on_message(message);
            }
            self.session.on_time(BootInstant::now());
            if self.session.is_settling() && self.exit.is_settled() {
                self.session.on_settled();
            }
        }
    }

    fn sleeps_until(&self) -> Instant {
        let wakes_at = self.session.wakes_at();
        let pause = wakes_at.map_or(LONGEST_SLEEP, |at| at - BootInstant::now());
        Instant::now() + pause.min(LONGEST_SLEEP)
    }

    /// Starts what is to be done.
    fn pump(&mut self) {
        if self.session.inbox.take_wanted() {
            self.start_readers();
        }
        #[cfg(feature = "replicas")]
        self.acknowledge();
        if !self.session.is_ready() {
            return;
        }
        match &self.link {
            Link::Connected(connection) => {
                let connection = connection.clone();
                self.send(&connection);
            }
            Link::Idle => self.connect(),
            Link::Connecting => {}
        }
    }

    /// Asks replicas for the grants that they must acknowledge.
    #[cfg(feature = "replicas")]
    fn acknowledge(&mut self) {
        for (held, asked) in self.session.take_unacknowledged() {
            let (server, connections) = (self.server.clone(), self.wait_connections.clone());
            let (limit, messages) = (self.response_timeout, self.messages.clone());
            tokio::spawn(async move {
                let outcome = connections.confirm(&server, &held, asked, limit).await;
                let _ = messages.send(Message::Acknowledged(held.identity.number, outcome));
            });
        }
    }

    /// Sends what is ready. The nodes of a cluster reply at their own pace, so each command is sent for itself there.
    fn send(&mut self, connection: &Connection) {
        let commands = self.session.take_commands(BootInstant::now());
        let at_once = match self.server.is_cluster() {
            true => 1,
            false => commands.len().max(1),
        };
        let mut commands = commands.into_iter();
        loop {
            let (sendings, commands): (Vec<_>, Vec<_>) = commands.by_ref().take(at_once).unzip();
            if sendings.is_empty() {
                return;
            }
            self.spawn_send(connection.clone(), sendings, commands);
        }
    }

    fn spawn_send(&self, mut connection: Connection, sendings: Vec<Sending>, commands: Vec<Cmd>) {
        let (messages, generation) = (self.messages.clone(), self.generation);
        let is_cluster = self.server.is_cluster();
        tokio::spawn(async move {
            let sent = connection.send(commands).await;
            let replies = sent.unwrap_or_else(|error| vec![Err(error); sendings.len()]);
            let is_lost = replies
                .iter()
                .any(|reply| reply.as_ref().is_err_and(should_reconnect));
            let replies = sendings.into_iter().zip(replies).map(|(sending, reply)| {
                let reply = reply.map_err(|error| map_error(error, is_cluster));
                (sending, reply)
            });
            let _ = messages.send(Message::Replies {
                generation,
                replies: replies.collect(),
                is_lost,
            });
        });
    }

    fn connect(&mut self) {
        self.link = Link::Connecting;
        self.generation += 1;
        let (server, limit, generation) = (self.server.clone(), self.response_timeout, self.generation);
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let lost = messages.clone();
            let on_loss = move || _ = lost.send(Message::Disconnected(generation));
            let connected = server.connect(limit, on_loss).await;
            let _ = messages.send(Message::Connected(connected));
        });
    }

    fn on_message(&mut self, message: Message) {
        let now = BootInstant::now();
        match message {
            Message::Connected(Ok(connection)) => {
                self.link = Link::Connected(connection);
                self.backoff = Backoff::default();
                self.session.on_connected();
            }
            Message::Connected(Err(error)) => self.on_connect_failed(error, now),
            Message::Disconnected(generation) => self.on_disconnected(generation, now),
            Message::Replies {
                generation,
                replies,
                is_lost,
            } => {
                if is_lost {
                    self.on_disconnected(generation, now);
                }
                for (sending, reply) in replies {
                    self.session.on_reply(sending, reply, now);
                }
            }
            #[cfg(feature = "replicas")]
            Message::Acknowledged(number, outcome) => self.session.on_acknowledged(number, outcome, now),
        }
    }

    fn on_connect_failed(&mut self, error: RedisError, now: BootInstant) {
        let error = Error::from(error).at(&self.label);
        self.session.on_connect_failed(&error, now);
        let (pause, messages) = (self.backoff.pause(), self.messages.clone());
        let generation = self.generation;
        // Until then it counts as connecting.
        tokio::spawn(async move {
            sleep(pause).await;
            let _ = messages.send(Message::Disconnected(generation));
        });
    }

    fn on_disconnected(&mut self, generation: u64, now: BootInstant) {
        if generation != self.generation {
            return;
        }
        let earlier = std::mem::replace(&mut self.link, Link::Idle);
        if matches!(earlier, Link::Connected(_)) {
            self.session.on_disconnected(now);
        }
    }

    fn start_readers(&mut self) {
        self.stop_readers();
        let readers = Readers {
            server: self.server.clone(),
            inbox: *self.session.inbox.name(),
            epoch: self.session.inbox.epoch(),
            response_timeout: self.response_timeout,
            news: self.news.clone(),
        };
        self.readers = Some(tokio::spawn(readers.run()));
    }

    fn stop_readers(&mut self) {
        if let Some(readers) = self.readers.take() {
            readers.abort();
        }
    }

    /// Of the inbox of this epoch.
    fn on_inbox(&mut self, epoch: u64, news: InboxNews) {
        let now = BootInstant::now();
        match news {
            InboxNews::Open => self.session.on_inbox_open(epoch, now),
            InboxNews::Unreachable => self.session.on_inbox_unreachable(epoch),
            InboxNews::Refused(error) => {
                let error = Error::from(error).at(&self.label);
                self.session.on_inbox_refused(epoch, &error, now);
            }
            InboxNews::Failed(error) => self.session.on_reader_failed(Error::from(error), now),
            InboxNews::Ended => self.session.end_inbox(epoch),
            InboxNews::Answers {
                sent_at,
                waited,
                answers,
            } => {
                self.session.on_answers(sent_at, waited, &answers, now);
                if answers.is_empty()
                    && epoch == self.session.inbox.epoch()
                    && self.session.close_idle_inbox(now)
                {
                    self.stop_readers();
                }
            }
        }
    }
}
