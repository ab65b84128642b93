//! Connections for requests: one for each runtime that sends, opened when there is something to send, and again after it
//! was lost.

use std::collections::HashMap;
use std::future::{pending, ready};
use std::hash::BuildHasherDefault;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::hold::Backoff;
use crate::server::{Connection, MAX_UNANSWERED, Reply, Server};
use crate::table::NumberHasher;

/// The links of a process.
pub(crate) struct Links {
    server: Server,
    label: Arc<str>,
    timeout: Duration,
    background: Arc<Link>,
    background_id: RuntimeId,
    by_runtime: Mutex<HashMap<RuntimeId, Arc<Link>, BuildHasherDefault<NumberHasher>>>,
    shared: Arc<Shared>,
}

/// What all links have in common.
#[derive(Default)]
struct Shared {
    /// Whether there has been a connection.
    has_connected: AtomicBool,
    /// A connection was lost.
    lost: Notify,
}

#[cfg(all(test, feature = "testing"))]
use crate::simulation::{RuntimeHandle, RuntimeId, handle_of, id_of};
#[cfg(not(all(test, feature = "testing")))]
type RuntimeId = runtime::Id;
#[cfg(not(all(test, feature = "testing")))]
type RuntimeHandle = runtime::Handle;

/// The connection of one runtime, which drives it.
pub(crate) struct Link {
    server: Server,
    label: Arc<str>,
    timeout: Duration,
    runtime: RuntimeHandle,
    /// Where Sentinels are asked.
    background: runtime::Handle,
    is_background: bool,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// The last attempt whose connection did not respond.
    given_up: AtomicU64,
    /// Whether the runtime has sockets and timers, as far as known.
    is_usable: AtomicBool,
    /// An attempt to connect has ended.
    changed: Notify,
    /// A permit for each command that may be sent.
    permits: Arc<Semaphore>,
    /// Ends with the runtime, whose id may be that of another one then.
    life: Weak<()>,
    life_task: AbortHandle,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    is_opening: bool,
    /// How many attempts to connect there were.
    attempts: u64,
    /// Why the last one failed.
    failure: Option<Error>,
    backoff: Backoff,
    /// Whether an attempt has ended.
    was_tried: bool,
}

/// The right to send the next command.
pub(crate) struct Turn {
    link: Arc<Link>,
    connection: Connection,
    attempt: u64,
    permit: OwnedSemaphorePermit,
}

/// A command that was sent. Its reply may be awaited in any thread.
pub(crate) struct Sent {
    link: Arc<Link>,
    attempt: u64,
    reply: Reply,
}

impl Links {
    pub fn new(server: Server, timeout: Duration, background: &runtime::Handle) -> Self {
        let (label, shared): (Arc<str>, _) = (server.to_string().into(), Arc::default());
        Self {
            background: Link::new(&server, &label, timeout, background, None, &shared),
            background_id: id_of(background),
            server,
            label,
            timeout,
            by_runtime: Mutex::default(),
            shared,
        }
    }

    /// Of the calling runtime, or of the background outside of tokio.
    pub fn here(&self) -> Arc<Link> {
        let Ok(runtime) = runtime::Handle::try_current() else {
            return Arc::clone(&self.background);
        };
        let id = id_of(&runtime);
        if id == self.background_id {
            return Arc::clone(&self.background);
        }
        let mut links = self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(&id).filter(|link| link.is_alive()) {
            return Arc::clone(link);
        }
        links.retain(|_, link| link.is_alive());
        let background = Some(&self.background.background);
        let link = Link::new(
            &self.server,
            &self.label,
            self.timeout,
            &runtime,
            background,
            &self.shared,
        );
        links.insert(id, Arc::clone(&link));
        link
    }

    /// The link by which the calling task can send by itself: none outside of tokio, and in a runtime without sockets or
    /// timers.
    pub async fn usable_here(&self) -> Option<Arc<Link>> {
        let link = self.here();
        let is_usable = match link.is_background {
            true => runtime::Handle::try_current().is_ok(),
            false => link.is_usable.load(Ordering::Relaxed) || Box::pin(link.find_out()).await,
        };
        is_usable.then_some(link)
    }

    /// How many commands have no reply yet, on all links.
    #[cfg(all(test, feature = "testing"))]
    pub fn unanswered(&self) -> usize {
        let links = self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let links = links.values().chain([&self.background]);
        links
            .map(|link| MAX_UNANSWERED - link.permits.available_permits())
            .sum()
    }

    pub fn background(&self) -> &Arc<Link> {
        &self.background
    }

    /// The address of the server, for messages.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// How long to wait for a connection, and for a reply.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn has_connected(&self) -> bool {
        self.shared.has_connected.load(Ordering::Relaxed)
    }

    /// A connection was lost since the last call.
    pub async fn lost(&self) {
        self.shared.lost.notified().await;
    }
}

#[cfg(not(all(test, feature = "testing")))]
fn id_of(runtime: &runtime::Handle) -> RuntimeId {
    runtime.id()
}
#[cfg(not(all(test, feature = "testing")))]
fn handle_of(runtime: &runtime::Handle) -> RuntimeHandle {
    runtime.clone()
}

impl Link {
    fn new(
        server: &Server,
        label: &Arc<str>,
        timeout: Duration,
        runtime: &runtime::Handle,
        background: Option<&runtime::Handle>,
        shared: &Arc<Shared>,
    ) -> Arc<Self> {
        let is_background = background.is_none();
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        let background = background.unwrap_or(runtime).clone();
        let runtime = handle_of(runtime);
        let life_task = runtime.spawn(async move {
            let _alive = alive;
            pending::<()>().await;
        });
        Arc::new(Self {
            server: server.clone(),
            label: Arc::clone(label),
            timeout,
            runtime,
            background,
            is_background,
            shared: Arc::clone(shared),
            state: Mutex::default(),
            given_up: AtomicU64::new(0),
            is_usable: AtomicBool::new(false),
            changed: Notify::new(),
            permits: Arc::new(Semaphore::new(MAX_UNANSWERED)),
            life,
            life_task: life_task.abort_handle(),
        })
    }

    fn is_alive(&self) -> bool {
        self.life.strong_count() > 0
    }

    pub fn is_open(&self) -> bool {
        self.state().connection.is_some()
    }

    /// Tries whether the runtime has sockets and timers.
    async fn find_out(self: &Arc<Self>) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if state.was_tried {
                    return self.is_usable.load(Ordering::Relaxed);
                }
                self.start_opening(&mut state);
            }
            changed.await;
        }
    }

    /// Waits until a command can be sent: for a connection, and for a permit, in order of arrival.
    ///
    /// # Errors
    ///
    /// There is no connection. Nothing was sent.
    pub async fn turn(self: &Arc<Self>) -> Result<Turn, Error> {
        if let Some(connected) = self.connected()
            && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
        {
            return Ok(Turn::new(self, connected, permit));
        }
        // Apart, so that those who need not wait, or wait for something else, are small.
        Box::pin(async {
            self.connection().await?;
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let permit = permit.map_err(|_| Error::no_response())?;
            // It may have been lost meanwhile.
            Ok(Turn::new(self, self.connection().await?, permit))
        })
        .await
    }

    /// The connection, opened if there is none, and the attempt that opened it. All who wait for an attempt share its
    /// failure.
    pub async fn connection(self: &Arc<Self>) -> Result<(Connection, u64), Error> {
        if let Some(connected) = self.connected() {
            return Ok(connected);
        }
        let mut awaited = None;
        loop {
            let changed = self.changed.notified();
            if let Some(connected) = self.connected() {
                return Ok(connected);
            }
            {
                let mut state = self.state();
                if !state.is_opening
                    && awaited == Some(state.attempts)
                    && let Some(failure) = &state.failure
                {
                    return Err(failure.clone());
                }
                self.start_opening(&mut state);
                awaited = Some(state.attempts);
            }
            changed.await;
        }
    }

    fn connected(&self) -> Option<(Connection, u64)> {
        let state = self.state();
        let connection = state.connection.clone()?;
        Some((connection, state.attempts))
    }

    /// In a task of the runtime that is to drive the connection: who waits for it may go.
    fn start_opening(self: &Arc<Self>, state: &mut State) {
        if state.connection.is_some() || std::mem::replace(&mut state.is_opening, true) {
            return;
        }
        state.attempts += 1;
        // The first one does not wait.
        let pause = state
            .failure
            .take()
            .map_or(Duration::ZERO, |_| state.backoff.pause());
        let opening = Opening {
            link: Arc::clone(self),
            outcome: None,
        };
        self.runtime.spawn(opening.run(state.attempts, pause));
    }

    /// The connection of this attempt is lost, or of no use.
    fn lose(&self, attempt: u64) {
        let mut state = self.state();
        if state.attempts == attempt && state.connection.take().is_some() {
            self.shared.lost.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under it is a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.life_task.abort();
    }
}

/// An attempt to connect.
struct Opening {
    link: Arc<Link>,
    outcome: Option<RedisResult<Connection>>,
}

impl Opening {
    async fn run(mut self, attempt: u64, pause: Duration) {
        let lost = Arc::downgrade(&self.link);
        let on_loss = move || {
            if let Some(link) = lost.upgrade() {
                link.lose(attempt);
            }
        };
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let Link {
            server,
            timeout,
            background,
            ..
        } = &*self.link;
        self.outcome = Some(server.connect(*timeout, None, background, on_loss).await);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let is_panic = std::thread::panicking();
        // Its runtime has ended, or has no sockets or timers.
        let ended = || Err(RedisError::from(io::Error::from(io::ErrorKind::NotConnected)));
        let outcome = self.outcome.take().unwrap_or_else(ended);
        let mut state = self.link.state();
        (state.is_opening, state.was_tried) = (false, true);
        self.link.is_usable.store(!is_panic, Ordering::Relaxed);
        match outcome {
            Ok(connection) => {
                state.connection = Some(connection);
                state.backoff = Backoff::default();
                self.link.shared.has_connected.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                state.failure = Some(Error::from(error).at(&self.link.label));
                // As if it had been lost: it is there while something is held.
                if self.link.is_background && state.backoff.is_fresh() {
                    self.link.shared.lost.notify_one();
                }
            }
        }
        drop(state);
        self.link.changed.notify_waiters();
    }
}

impl Turn {
    fn new(link: &Arc<Link>, (connection, attempt): (Connection, u64), permit: OwnedSemaphorePermit) -> Self {
        Self {
            link: Arc::clone(link),
            connection,
            attempt,
            permit,
        }
    }

    /// Passes a command to the task that drives the connection, which sends it once. If the reply is not awaited any more
    /// by then, it is not sent.
    pub fn send(self, command: Cmd) -> Sent {
        let Self {
            link,
            connection,
            attempt,
            permit,
        } = self;
        let mut reply = connection.send(command, &link.runtime, permit);
        // Whoever awaits the reply polls it again.
        if let Poll::Ready(arrived) = reply.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            reply = Box::pin(ready(arrived));
        }
        Sent { link, attempt, reply }
    }
}

impl Sent {
    /// The reply. If there is none in time, the connection is given up, and the server may or may not have run the command.
    pub async fn reply(&mut self) -> Result<Value, Error> {
        self.reply_in_time().await.map_err(|error| {
            if crate::server::should_reconnect(&error) {
                self.link.lose(self.attempt);
            }
            crate::server::map_error(error, &self.link.server).at(&self.link.label)
        })
    }

    /// A runtime that was blocked reads what has arrived before the time is up.
    async fn reply_in_time(&mut self) -> RedisResult<Value> {
        const SLICES: u32 = 5;
        for _ in 0..SLICES {
            if let Ok(reply) = timeout(self.link.timeout / SLICES, &mut self.reply).await {
                return reply;
            }
            // Who waits for a reply keeps the connection open. What it still delivers would come too late to be given back.
            if self.link.given_up.load(Ordering::Relaxed) >= self.attempt {
                break;
            }
        }
        self.link.given_up.fetch_max(self.attempt, Ordering::Relaxed);
        // This keeps it open, too.
        self.reply = Box::pin(pending());
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }
}
