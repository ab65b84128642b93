//! The thread behind the guards: it renews leases, tells what is lost, and carries out what guards and
//! dropped futures leave behind. So nothing of that depends on the runtime of the application, and one
//! stuck task of it costs nobody else a lock.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::clock::BootInstant;
use crate::error::Error;
use crate::events::EventKind;
mod shared_hold;

use crate::hold::{Action, LostReason};
pub(crate) use shared_hold::{RenewalContext, RenewalQueue, SharedHold};

/// The handle to the thread. Dropped, the thread ends as soon as nothing is left to do.
pub(crate) struct RenewalThread {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    agenda: RenewalQueue,
    wake: Notify,
    tasks: TaskTracker,
}

impl RenewalThread {
    pub fn start() -> Result<Arc<Self>, Error> {
        let cannot = |error: io::Error| Error::Redis(error.into());
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(cannot)?;
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared {
            agenda: RenewalQueue::new(BootInstant::now()),
            wake: Notify::new(),
            tasks: TaskTracker::new(),
        });
        let keeping = keep(Arc::clone(&shared));
        thread::Builder::new()
            .name("dlock-keeper".into())
            .spawn(move || runtime.block_on(keeping))
            .map_err(cannot)?;
        Ok(Arc::new(Self {
            shared,
            runtime: handle,
        }))
    }

    /// Looks after a hold from now on.
    pub fn watch(&self, held: &Arc<SharedHold>) {
        self.shared.schedule(held);
    }

    /// Does not look after a hold any more. To be called after it was given up.
    pub fn unwatch(&self, held: &SharedHold) {
        self.shared.agenda.remove(held);
    }

    /// Has something done that nobody waits for. Never blocks, works on any thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn_on(task, &self.runtime);
    }

    /// The runtime of the thread.
    #[cfg(any(feature = "blocking", feature = "redlock"))]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for RenewalThread {
    fn drop(&mut self) {
        self.shared.agenda.end();
        self.shared.wake.notify_one();
    }
}

async fn keep(shared: Arc<Shared>) {
    while let Some(nap) = shared.run_due() {
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep(nap) => {}
        }
    }
    shared.tasks.close();
    shared.tasks.wait().await;
}

impl Shared {
    /// Does what is due. For how long there is nothing to do then; `None` when it is over.
    fn run_due(self: &Arc<Self>) -> Option<Duration> {
        let now = BootInstant::now();
        while let Some(held) = self.agenda.take_due(now) {
            self.process(&held, now);
        }
        self.agenda.next_timeout(BootInstant::now())
    }

    fn process(self: &Arc<Self>, held: &Arc<SharedHold>, now: BootInstant) {
        match held.with(|hold| hold.on_time(now)) {
            Some(Action::Extend { lease, patience }) => {
                let renewal = Arc::clone(self).renew(Arc::clone(held), lease, patience);
                tokio::spawn(renewal);
            }
            Some(Action::NotifyLost(reason)) => notify_lost(held, reason),
            None => {}
        }
        self.schedule(held);
    }

    fn schedule(&self, held: &Arc<SharedHold>) {
        if self.agenda.schedule(held) {
            self.wake.notify_one();
        }
    }

    async fn renew(self: Arc<Self>, held: Arc<SharedHold>, lease: Duration, patience: Duration) {
        let sent = BootInstant::now();
        let answer = extend(&held, lease, patience).await;
        let took = BootInstant::now().since(sent);
        let what = match &answer {
            Ok(_) => EventKind::Renewed { took },
            Err(error) => EventKind::RenewFailed { error },
        };
        let (action, is_held) = held.with(|hold| {
            // The time of now, not of before: somebody may have found the lock lost meanwhile, and it stays so.
            let now = BootInstant::now();
            let action = hold.on_renewed(sent, &answer, now);
            (action, hold.is_held(now))
        });
        match action {
            Some(Action::NotifyLost(reason)) => notify_lost(&held, reason),
            _ if is_held => held.context.reporter.report(&held.identity, what),
            // It was given up meanwhile: nobody renews it any more.
            _ => {}
        }
        self.schedule(&held);
    }
}

/// Tells the holder that its lock is lost.
pub(crate) fn notify_lost(held: &SharedHold, reason: LostReason) {
    held.cancel();
    held.context
        .reporter
        .report(&held.identity, EventKind::Lost { reason });
}

/// Sends an EXTEND: the lease that remains.
async fn extend(held: &SharedHold, lease: Duration, patience: Duration) -> Result<Duration, Error> {
    let command = held.identity.extend(lease, held.fence);
    let answer: Result<u64, Error> = held.context.link.query_within(patience, &command).await;
    answer.map(Duration::from_millis)
}
