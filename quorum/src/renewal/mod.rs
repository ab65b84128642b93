//! The renewal thread: it renews leases, detects losses, and runs releases and cancellations in the background. It
//! does not depend on the runtime of the application, so a task that blocks there costs no lock.

mod queue;
mod shared_hold;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redis::RedisError;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::clock::BootInstant;
use crate::command::Milliseconds;
use crate::error::{Error, LostReason};
use crate::events::{EventKind, enter_renewal_thread};
use crate::hold::Action;
use crate::sync::lock;
use queue::RenewalQueue;
pub(crate) use shared_hold::{RenewalContext, SharedHold};

/// The handle to the thread. Dropped, the thread ends when its tasks are done.
pub(crate) struct RenewalThread {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    queue: RenewalQueue,
    wake: Notify,
    /// Releases and cancellations in progress.
    tasks: Mutex<TaskTracker>,
}

impl RenewalThread {
    pub fn start() -> Result<Arc<Self>, Error> {
        let failed = |error: io::Error| Error::from(RedisError::from(error));
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared {
            queue: RenewalQueue::new(BootInstant::now()),
            wake: Notify::new(),
            tasks: Mutex::default(),
        });
        let running = run(Arc::clone(&shared));
        thread::Builder::new()
            .name("dlock-renewal".into())
            .spawn(move || {
                enter_renewal_thread();
                runtime.block_on(running);
            })
            .map_err(failed)?;
        Ok(Arc::new(Self {
            shared,
            runtime: handle,
        }))
    }

    /// Renews the hold from now on.
    pub fn watch(&self, held: &Arc<SharedHold>) {
        self.shared.schedule(held);
    }

    /// Stops renewing a hold that was given up.
    pub fn unwatch(&self, held: &SharedHold) {
        self.shared.queue.remove(held);
    }

    /// Runs a release or a cancellation in the background. Never blocks, works on any thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.shared.tasks).spawn_on(task, &self.runtime);
    }

    /// Runs a task in the caller's runtime, to which its timers belong. [`RenewalThread::settle`] waits for it, too.
    #[cfg(feature = "quorum")]
    pub fn spawn_here<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        lock(&self.shared.tasks).spawn(task)
    }

    /// Connects, and renews all holds as soon as a lost connection has been replaced.
    pub fn maintain(&self, context: &Arc<RenewalContext>) {
        let (shared, link) = (Arc::clone(&self.shared), Arc::clone(&context.link));
        let context = Arc::downgrade(context);
        self.runtime.spawn(async move {
            // Before it is needed, so that the first renewal of a short lease does not have to wait. A server that cannot
            // be reached may have lost its locks, too.
            if link.route().await.is_err() {
                link.disconnected.notify_one();
            }
            let disconnected = Arc::clone(&link.disconnected);
            drop(link);
            loop {
                disconnected.notified().await;
                let Some(context) = context.upgrade() else {
                    return;
                };
                shared.renew_all_of(&context).await;
            }
        });
    }

    /// Resolves when all tasks that were spawned before are done, and those that they have left to the background.
    pub async fn settle(&self) {
        self.settle_tasks().await;
        self.settle_tasks().await;
    }

    async fn settle_tasks(&self) {
        let settled = {
            let mut tasks = lock(&self.shared.tasks);
            let earlier = std::mem::take(&mut *tasks);
            earlier.close();
            // A later call waits for these tasks, too.
            let all = earlier.clone();
            tasks.spawn_on(async move { all.wait().await }, &self.runtime);
            earlier
        };
        settled.wait().await;
    }

    /// The runtime of the thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for RenewalThread {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.wake.notify_one();
    }
}

async fn run(shared: Arc<Shared>) {
    while let Some(timeout) = shared.run_due() {
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep(timeout) => {}
        }
    }
    let tasks = lock(&shared.tasks).clone();
    tasks.close();
    tasks.wait().await;
}

impl Shared {
    /// Handles all holds that are due. How long there is nothing to do then; `None` when the thread ends.
    fn run_due(self: &Arc<Self>) -> Option<Duration> {
        let now = BootInstant::now();
        while let Some(held) = self.queue.take_due(now) {
            match held.with(|hold| hold.on_time(now)) {
                Some(Action::Extend { lease, timeout }) => {
                    tokio::spawn(Arc::clone(self).renew(Arc::clone(&held), lease, timeout));
                }
                Some(Action::NotifyLost(reason)) => notify_lost(&held, reason),
                None => {}
            }
            self.schedule(&held);
        }
        self.queue.next_timeout(BootInstant::now())
    }

    fn schedule(&self, held: &Arc<SharedHold>) {
        if self.queue.schedule(held) {
            self.wake.notify_one();
        }
    }

    async fn renew(self: Arc<Self>, held: Arc<SharedHold>, lease: Duration, timeout: Duration) {
        let sent = BootInstant::now();
        let command = held.extend(lease);
        let reply = held.context.link.query_within(timeout, &command).await;
        let reply = reply.map(|Milliseconds(lease)| held.context.certain(lease));
        let took = BootInstant::now().since(sent);
        // The clock is read while the hold is locked: it may have been found lost meanwhile, and then it stays lost.
        let (action, is_held) = held.now(|hold, now| (hold.on_renewed(sent, &reply, now), hold.is_held(now)));
        match (action, reply) {
            (Some(Action::NotifyLost(reason)), _) => notify_lost(&held, reason),
            // It was given up meanwhile.
            _ if !is_held => {}
            (_, Ok(_)) => held.context.report(&held.identity, EventKind::Renewed { took }),
            (_, Err(error)) => held
                .context
                .report(&held.identity, EventKind::RenewFailed { error }),
        }
        self.schedule(&held);
    }

    /// A server that closed the connection may have lost its locks: every hold is renewed as soon as there is another
    /// connection.
    async fn renew_all_of(&self, context: &Arc<RenewalContext>) {
        let mut backoff = Backoff::new();
        while self.queue.has_holds_of(context) {
            // Of a cluster, only one connection was lost: renewals find out whether its node is there. Otherwise a reply
            // shows that this is another connection. Some users may not send PING, but get a reply, too.
            let is_back = context.link.is_cluster() || {
                let reply = context.link.query::<redis::Value>(&redis::cmd("PING")).await;
                !reply.is_err_and(|error| error.is_transient())
            };
            if is_back {
                if self.queue.renew_all_of(context, BootInstant::now()) {
                    self.wake.notify_one();
                }
                return;
            }
            sleep(backoff.pause(Duration::MAX)).await;
        }
    }
}

/// Notifies the holder that its lock is lost.
pub(crate) fn notify_lost(held: &SharedHold, reason: LostReason) {
    held.token.cancel();
    held.context.report(&held.identity, EventKind::Lost { reason });
    if let Some(listener) = held.loss_listener.get() {
        listener();
    }
}
