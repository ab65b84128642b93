//! The background: renews leases, tells of losses, reads answers, and finishes what callers have left.

use std::io;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::command::{InboxName, Request};
use crate::error::Error;
use crate::events::Hook;
use crate::hold::{Action, Backoff, BootInstant, random_share};
use crate::link::Links;
use crate::server::{Connection, Node, Server};
use crate::session::{Session, Task};
use crate::table::Held;

/// The background looks at its clock at least this often while something is held: timers do not count suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Holds that are due within this time are renewed together, if that is early enough for each of them.
const RENEWED_TOGETHER: Duration = Duration::from_millis(50);
/// After a lost connection, all holds are renewed within this time.
const RENEWED_AFTER_LOSS: Duration = Duration::from_millis(500);

/// Who uses a session. When it is dropped, the background ends, once nothing is left to do.
pub(crate) struct Handle(Arc<Session>);

struct Background {
    session: Arc<Session>,
    server: Server,
    left: UnboundedReceiver<Task>,
    tasks: FuturesUnordered<Task>,
    readers: Option<Task>,
    connecting: Option<Task>,
    /// Sends what waited for an inbox: one batch after the other, in order.
    asking: Option<Task>,
    /// Whether something is held, or was a moment ago.
    is_busy: bool,
}

impl Handle {
    /// Starts the background in a thread of its own.
    pub fn start(server: Server, response_timeout: Duration, hook: Hook) -> Result<Self, Error> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let (handle, background) = Self::new(server, response_timeout, hook, runtime.handle());
        // A task of the runtime wakes others of its thread without a system call, unlike the future of `block_on`.
        let run = move || _ = runtime.block_on(runtime.spawn(background));
        let thread = thread::Builder::new().name("dlock".into()).spawn(run);
        thread.map_err(no_thread)?;
        Ok(handle)
    }

    /// Starts the background in a runtime.
    pub fn start_in(
        runtime: &runtime::Handle,
        server: Server,
        response_timeout: Duration,
        hook: Hook,
    ) -> Self {
        let (handle, background) = Self::new(server, response_timeout, hook, runtime);
        runtime.spawn(background);
        handle
    }

    /// What the runtime is to run goes with it.
    pub fn new(
        server: Server,
        response_timeout: Duration,
        hook: Hook,
        runtime: &runtime::Handle,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (tasks, left) = unbounded_channel();
        let is_cluster = server.is_cluster();
        let links = Links::new(server.clone(), response_timeout, runtime);
        let session = Arc::new(Session::new(
            links,
            is_cluster,
            hook,
            runtime.clone(),
            tasks,
            process::id(),
        ));
        let background = Background {
            session: Arc::clone(&session),
            server,
            left,
            tasks: FuturesUnordered::new(),
            readers: None,
            connecting: None,
            asking: None,
            is_busy: false,
        };
        (Self(session), background.run())
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for Handle {
    /// The last handle of a program that is about to end waits a little for its releases, outside of async code.
    fn drop(&mut self) {
        let Self(session) = self;
        session.is_closing.store(true, Ordering::SeqCst);
        session.wakeup.notify_one();
        if session.is_at_home() && runtime::Handle::try_current().is_err() {
            session.exit.wait();
        }
    }
}

fn no_thread(error: io::Error) -> Error {
    RedisError::from(error).into()
}

impl Drop for Background {
    /// At its end, or at that of the runtime that the application has lent to it.
    fn drop(&mut self) {
        self.left.close();
        if !self.session.is_closing.load(Ordering::SeqCst) {
            self.session.on_background_ended();
        }
    }
}

impl Background {
    /// Until all handles are gone and nothing is left to do.
    async fn run(mut self) {
        loop {
            let sleeps_until = self.begin();
            if self.session.is_closing.load(Ordering::SeqCst) && self.is_over() {
                return;
            }
            let pause = sleeps_until - BootInstant::now();
            tokio::select! {
                biased;
                Some(task) = self.left.recv() => self.tasks.push(task),
                Some(()) = self.tasks.next() => {}
                () = wait_for(&mut self.readers) => self.readers = None,
                () = wait_for(&mut self.connecting) => self.connecting = None,
                () = wait_for(&mut self.asking) => self.asking = None,
                () = self.session.links.lost() => self.renew_all(),
                () = self.session.wakeup.notified() => {}
                () = sleep(pause) => {}
            }
            while let Ok(task) = self.left.try_recv() {
                self.tasks.push(task);
            }
            while let Some(Some(())) = self.tasks.next().now_or_never() {}
        }
    }

    fn is_over(&self) -> bool {
        self.tasks.is_empty()
            && self.asking.is_none()
            && self.left.is_empty()
            && self.session.table().is_empty()
    }

    /// Starts what is to be done now: when there will be more.
    fn begin(&mut self) -> BootInstant {
        let now = BootInstant::now();
        self.renew(now);
        let session = Arc::clone(&self.session);
        let (wanted, parked, wakes_at) = {
            let mut table = session.table();
            // At the same time as the sleep is set: a caller looks at that after its grant.
            self.is_busy |= table.take_fresh();
            // While locks come and go, callers need not wake it.
            let longest = if self.is_busy {
                LONGEST_SLEEP
            } else {
                Duration::MAX
            };
            let sleeps_until = table.wakes_at().unwrap_or(now + longest).min(now + longest);
            session.set_sleep(sleeps_until);
            let parked = if self.asking.is_none() {
                table.take_parked()
            } else {
                Vec::new()
            };
            (table.take_wanted(), parked, sleeps_until)
        };
        if let Some((inbox, epoch)) = wanted {
            let (session, server) = (Arc::clone(&session), self.server.clone());
            let readers = Readers {
                session,
                server,
                inbox,
                epoch,
            };
            self.readers = Some(Box::pin(readers.run()));
        }
        if !parked.is_empty() {
            self.asking = Some(Box::pin(ask_again(session, parked)));
        }
        wakes_at
    }

    /// Renews what is due, or soon will be, and tells of holds that are lost.
    fn renew(&mut self, now: BootInstant) {
        let due: Vec<_> = {
            let mut table = self.session.table();
            self.is_busy = table.take_fresh();
            std::iter::from_fn(|| table.take_due(now, now + RENEWED_TOGETHER)).collect()
        };
        for (at, held) in due {
            // One that is due a little later is renewed now, with the others.
            let action = held.hold().on_time(at.max(now));
            match action {
                Some(Action::Extend(lease)) => {
                    let session = Arc::clone(&self.session);
                    self.tasks
                        .push(Box::pin(renew(session, Arc::clone(&held), lease)));
                }
                Some(Action::NotifyLost(lost)) => self.session.lose(&held, lost),
                None => {}
            }
            self.session.table().set_timer(held.request.number);
        }
        self.connect();
    }

    /// Something is held: its connection shows at once when the server is restarted.
    fn connect(&mut self) {
        let link = self.session.links.background();
        if self.connecting.is_none() && !link.is_open() && self.session.table().wakes_at().is_some() {
            let link = Arc::clone(link);
            self.connecting = Some(Box::pin(async move { _ = link.connection().await }));
        }
    }

    /// A connection was lost: how long the server was away, and what it still has, is not known.
    fn renew_all(&mut self) {
        let now = BootInstant::now();
        let mut table = self.session.table();
        let held: Vec<_> = table.holds().map(Arc::clone).collect();
        for held in held {
            let pause = RENEWED_AFTER_LOSS.mul_f64(random_share(0.0..=1.0));
            held.hold().renew_by(now + pause);
            table.set_timer(held.request.number);
        }
    }
}

async fn wait_for(task: &mut Option<Task>) {
    match task {
        Some(task) => Pin::new(task).await,
        None => std::future::pending().await,
    }
}

async fn renew(session: Arc<Session>, held: Arc<Held>, lease: Duration) {
    let mut sent_at = BootInstant::now();
    // No longer than is left when it is sent.
    let extend = || {
        sent_at = BootInstant::now();
        held.extend_within(lease, sent_at)
    };
    let reply = session.send(extend).await;
    session.on_renewed(&held, sent_at, reply);
}

/// Sends requests that waited for an inbox, in order.
async fn ask_again(session: Arc<Session>, requests: Vec<Arc<Request>>) {
    let mut replies = FuturesUnordered::new();
    let mut requests = requests.into_iter();
    while let Some(request) = requests.next() {
        let turning = session.links.here();
        let mut turning = std::pin::pin!(turning.turn());
        let turn = loop {
            tokio::select! {
                biased;
                turn = &mut turning => break turn,
                // Those that have arrived make room.
                Some(()) = replies.next() => {}
            }
        };
        let now = BootInstant::now();
        let turn = match turn {
            Ok(turn) => turn,
            // The next connection could be there for newer ones before the callers of these have sent them again.
            Err(error) => {
                let unsent = std::iter::once(request).chain(requests);
                session.table().on_unsent(unsent, error, now);
                break;
            }
        };
        let Some((inbox, sending)) = session.table().begin_again(&request, now) else {
            continue;
        };
        let session = &session;
        let mut sent = turn.send(request.acquire(&inbox));
        replies.push(async move { session.on_reply(&request, sending, sent.reply().await) });
    }
    while replies.next().await.is_some() {}
}

/// How long a call waits for answers. Less than the inbox lasts without one.
const BLOCKS_FOR: Duration = Duration::from_secs(2);
/// How long the inbox lasts after the last call.
const TTL: Duration = Duration::from_secs(5);
/// How long to wait for the reply to a call.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// The readers of one inbox.
pub(crate) struct Readers {
    pub session: Arc<Session>,
    pub server: Server,
    pub inbox: InboxName,
    pub epoch: u64,
}

/// A reader and its place.
struct Reader<'a> {
    readers: &'a Readers,
    connection: Connection,
    node: Node,
    cursor: u64,
}

impl Readers {
    /// Creates the inbox everywhere, then reads it until it ends.
    pub async fn run(self) {
        let mut backoff = Backoff::default();
        let readers = loop {
            // Requests that may have to wait are held back meanwhile.
            match timeout(self.session.links.timeout(), self.create()).await {
                Ok(Ok(readers)) => break readers,
                Ok(Err(error)) if error.code() == Some("BUSYINBOX") => return self.end(),
                Ok(Err(error)) if is_final(&error) => return self.refuse(error),
                Ok(Err(_)) | Err(_) => self.session.table().on_inbox_unreachable(self.epoch),
            }
            self.session.wakeup.notify_one();
            sleep(backoff.pause()).await;
        };
        self.session.table().on_inbox_open(self.epoch, BootInstant::now());
        self.session.wakeup.notify_one();
        let mut reading: FuturesUnordered<_> = readers.into_iter().map(Reader::run).collect();
        reading.next().await;
        self.end();
    }

    fn end(&self) {
        self.session.table().on_inbox_ended(self.epoch);
        self.session.wakeup.notify_one();
    }

    fn refuse(&self, error: RedisError) {
        let error = Error::from(error).at(self.session.links.label());
        let refused = self.session.table().on_inbox_refused(self.epoch, &error);
        refused.into_iter().for_each(Waker::wake);
    }

    async fn create(&self) -> RedisResult<Vec<Reader<'_>>> {
        let mut connection = self.connect().await?;
        let mut readers = Vec::new();
        for node in connection.primaries().await? {
            let mut reader = Reader {
                readers: self,
                connection: connection.clone(),
                node,
                cursor: 0,
            };
            reader.read(BootInstant::now()).await?;
            readers.push(reader);
        }
        Ok(readers)
    }

    async fn connect(&self) -> RedisResult<Connection> {
        let limit = self.session.links.timeout();
        self.server.connect_reader(limit, READ_TIMEOUT).await
    }
}

impl Reader<'_> {
    /// Reads until the inbox has ended, or must have ended because its server was away.
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut replied_at = BootInstant::now();
        // When the call was sent first, if it is repeated.
        let mut sent_at = replied_at;
        loop {
            match self.read(sent_at).await {
                // Nobody has waited for a while.
                Ok(true) => return,
                Ok(false) => {
                    backoff = Backoff::default();
                    replied_at = BootInstant::now();
                    sent_at = replied_at;
                    self.readers.session.notice();
                }
                Err(error) if has_ended(&error) || BootInstant::now() - replied_at > TTL => return,
                Err(error) => {
                    let trouble = Some(Error::from(error.clone()));
                    self.readers
                        .session
                        .table()
                        .set_trouble(trouble, BootInstant::now());
                    sleep(backoff.pause()).await;
                    if crate::server::should_reconnect(&error)
                        && let Ok(connection) = self.readers.connect().await
                    {
                        self.connection = connection;
                    }
                }
            }
        }
    }

    /// One call. The same one is repeated until it has a reply. Returns whether the inbox was closed, because nobody waits.
    async fn read(&mut self, sent_at: BootInstant) -> RedisResult<bool> {
        let reply = self.connection.query_node(&self.command(), &self.node).await?;
        let (cursor, waited_ms, answers): (_, _, Vec<Value>) = FromRedisValue::from_redis_value(reply)?;
        let waited = Duration::from_millis(waited_ms);
        let is_new = std::mem::replace(&mut self.cursor, cursor) == 0;
        let Readers { session, epoch, .. } = self.readers;
        session.on_answers(sent_at, waited, &answers);
        // Not the call that creates it.
        Ok(!is_new && answers.is_empty() && session.table().close_idle_inbox(*epoch, BootInstant::now()))
    }

    fn command(&self) -> Cmd {
        let mut command = cmd("DLOCK.GRANTS");
        command.arg(&self.readers.inbox).arg(self.cursor);
        if self.cursor == 0 {
            command.arg("TTL").arg(TTL.as_millis() as u64);
        } else {
            command.arg("BLOCK").arg(BLOCKS_FOR.as_millis() as u64);
        }
        command
    }
}

/// Whether the server would say the same again.
fn is_final(error: &RedisError) -> bool {
    !error.is_io_error() && !Error::from(error.clone()).is_transient()
}

/// Whether the server says that the inbox is gone: it goes with the role of a primary, too.
fn has_ended(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOINBOX" | "BUSYINBOX" | "READONLY"))
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::guard::Guard;
    use crate::locks::Locks;
    use crate::testing::TestServer;

    /// As a child process has it that was forked after the locks were opened: without the background.
    fn forked(server: &TestServer, runtime: &runtime::Handle) -> (Arc<Handle>, UnboundedReceiver<Task>) {
        let (session, left) = session(&server.url(), runtime, process::id() + 1);
        (Arc::new(Handle(Arc::new(session))), left)
    }

    fn session(url: &str, runtime: &runtime::Handle, pid: u32) -> (Session, UnboundedReceiver<Task>) {
        let (tasks, left) = unbounded_channel();
        let server = Server::try_from(url).expect("a valid address");
        let links = Links::new(server, Duration::from_secs(1), runtime);
        let session = Session::new(links, false, Hook::default(), runtime.clone(), tasks, pid);
        (session, left)
    }

    /// Their callers would send them again each at its own time.
    #[tokio::test]
    async fn requests_of_a_new_inbox_wait_on_together_while_there_is_no_connection_to_send_them() {
        let nowhere = "redis://127.0.0.1:1/";
        let (session, _left) = session(nowhere, &runtime::Handle::current(), process::id());
        let session = Arc::new(session);
        let waiting: Vec<_> = (1..=3).map(|number| waiting(number, &session)).collect();
        let parked = {
            let (mut table, now) = (session.table(), BootInstant::now());
            let (_, sending) = table.begin(&waiting[0], now).expect("the first one");
            assert!(table.begin(&waiting[1], now).is_none() && table.begin(&waiting[2], now).is_none());
            let no_inbox = redis::make_extension_error("NOINBOX".into(), None);
            table.on_reply(&waiting[0], sending, Err(no_inbox.into()), now);
            let (_, epoch) = table.take_wanted().expect("requests wait");
            table.on_inbox_open(epoch, now);
            table.take_parked()
        };
        ask_again(Arc::clone(&session), parked).await;
        let again = session.table().take_parked();
        assert_eq!(
            again.iter().map(|request| request.number).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(session.table().trouble().is_some(), "the cause of a timeout");
    }

    fn waiting(number: u64, session: &Session) -> Arc<Request> {
        Arc::new(Request {
            waits: true,
            ..Request::answered(number, b"door", b"alice", &session.process)
        })
    }

    #[test]
    fn locks_and_guards_of_another_process_send_nothing_and_say_so() {
        let server = TestServer::start();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let parents = Locks::open(server.url()).unwrap();
        let guard = runtime.block_on(parents.acquire("door")).unwrap();
        let (handle, mut left) = forked(&server, runtime.handle());
        let childs = || Guard::new(&handle, Arc::clone(guard.held()));
        let locks = Locks::of(Arc::clone(&handle));
        let errors = runtime.block_on(async {
            [
                locks.acquire("other").await.map(drop).unwrap_err(),
                locks.lock("other").try_acquire().await.map(drop).unwrap_err(),
                locks.ping().await.unwrap_err(),
                childs()
                    .extend(Duration::from_secs(60))
                    .await
                    .map(drop)
                    .unwrap_err(),
                childs().release().await.unwrap_err(),
            ]
        });
        for error in errors {
            let is_told = matches!(&error, Error::Invalid(text) if text.contains("forked"));
            assert!(is_told, "{error}");
        }
        drop(childs());
        assert!(left.try_recv().is_err(), "nobody would do it");
        assert!(guard.is_held());
        runtime.block_on(guard.release()).unwrap();
    }
}
