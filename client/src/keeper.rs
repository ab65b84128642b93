//! The thread behind the guards: it renews leases, tells what is lost, and carries out what guards and
//! dropped futures leave behind. So nothing of that depends on the runtime of the application, and one
//! stuck task of it costs nobody else a lock.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use redis::RedisError;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Moment;
use crate::connect::Link;
use crate::error::Error;
use crate::events::{Reporter, What};
use crate::hold::{Action, Hold, Loss};
use crate::sync::lock;
use crate::ticket::Ticket;

/// Timers do not count suspend: after it, what is overdue is noticed within this.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// With nothing to look after.
const REST: Duration = Duration::from_secs(3600);

/// A hold that a guard stands for.
pub(crate) struct Held {
    pub ticket: Ticket,
    pub fence: u64,
    pub holds: u64,
    /// Tells apart holds that are due at the same time.
    number: u64,
    hold: Mutex<Hold>,
    /// When the keeper looks after it next. Changed only with the agenda in hand.
    due: Mutex<Option<Moment>>,
    /// Made when somebody asks for it.
    token: OnceLock<CancellationToken>,
}

impl Held {
    pub fn new(ticket: Ticket, fence: u64, holds: u64, hold: Hold) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            ticket,
            fence,
            holds,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            hold: Mutex::new(hold),
            due: Mutex::default(),
            token: OnceLock::new(),
        })
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Hold) -> T) -> T {
        look(&mut lock(&self.hold))
    }

    /// What is cancelled when the hold is lost.
    pub fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        // Lost before there was a token: whoever found that out found none to cancel.
        if self.with(|hold| hold.is_lost()) {
            token.cancel();
        }
        token
    }

    /// The hold is lost: tells everybody who has the token.
    fn cancel(&self) {
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }
}

/// The handle to the thread. Dropped, the thread ends as soon as nothing is left to do.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    link: Arc<Link>,
    reporter: Reporter,
    agenda: Mutex<Agenda>,
    wake: Notify,
    tasks: TaskTracker,
}

struct Agenda {
    due: BTreeMap<(Moment, u64), Arc<Held>>,
    /// The thread looks at the agenda then, if nobody wakes it.
    next_look: Moment,
    ended: bool,
}

impl Keeper {
    pub fn start(link: Arc<Link>, reporter: Reporter) -> Result<Self, Error> {
        let cannot = |error: io::Error| Error::Redis(error.into());
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(cannot)?;
        let handle = runtime.handle().clone();
        let agenda = Agenda {
            due: BTreeMap::new(),
            next_look: Moment::now(),
            ended: false,
        };
        let shared = Arc::new(Shared {
            link,
            reporter,
            agenda: Mutex::new(agenda),
            wake: Notify::new(),
            tasks: TaskTracker::new(),
        });
        let keeping = keep(Arc::clone(&shared));
        thread::Builder::new()
            .name("dlock-keeper".into())
            .spawn(move || runtime.block_on(keeping))
            .map_err(cannot)?;
        Ok(Self {
            shared,
            runtime: handle,
        })
    }

    /// Looks after a hold from now on.
    pub fn watch(&self, held: &Arc<Held>) {
        self.shared.schedule(held);
    }

    /// Does not look after a hold any more.
    pub fn unwatch(&self, held: &Arc<Held>) {
        let mut agenda = lock(&self.shared.agenda);
        if let Some(due) = lock(&held.due).take() {
            agenda.due.remove(&(due, held.number));
        }
    }

    /// Has something done that nobody waits for. Never blocks, works on any thread.
    pub fn hand_over(&self, errand: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn_on(errand, &self.runtime);
    }

    /// Tells the holder that its lock is lost.
    pub fn tell_lost(&self, held: &Held, loss: Loss) {
        self.shared.tell_lost(held, loss);
    }

    /// The runtime of the thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The connection of the thread.
    pub fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        lock(&self.shared.agenda).ended = true;
        self.shared.wake.notify_one();
    }
}

async fn keep(shared: Arc<Shared>) {
    while let Some(nap) = shared.look() {
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep(nap) => {}
        }
    }
    shared.tasks.close();
    shared.tasks.wait().await;
}

impl Shared {
    /// Does what is due. When to look again; `None` when it is over.
    fn look(self: &Arc<Self>) -> Option<Duration> {
        let now = Moment::now();
        while let Some(held) = self.take_due(now) {
            self.attend(&held, now);
        }
        let mut agenda = lock(&self.agenda);
        if agenda.ended {
            return None;
        }
        let now = Moment::now();
        let first = agenda.due.keys().next();
        let nap = first.map_or(REST, |&(due, _)| due.since(now).min(LONGEST_NAP));
        agenda.next_look = now + nap;
        Some(nap)
    }

    fn take_due(&self, now: Moment) -> Option<Arc<Held>> {
        let mut agenda = lock(&self.agenda);
        let first = agenda.due.first_entry().filter(|first| first.key().0 <= now)?;
        let held = first.remove();
        *lock(&held.due) = None;
        Some(held)
    }

    fn attend(self: &Arc<Self>, held: &Arc<Held>, now: Moment) {
        match held.with(|hold| hold.on_time(now)) {
            Some(Action::Extend { lease, patience }) => {
                let renewal = Arc::clone(self).renew(Arc::clone(held), lease, patience);
                tokio::spawn(renewal);
            }
            Some(Action::TellLost(loss)) => self.tell_lost(held, loss),
            None => {}
        }
        self.schedule(held);
    }

    /// Puts a hold on the agenda, at its time of now.
    fn schedule(&self, held: &Arc<Held>) {
        let mut agenda = lock(&self.agenda);
        let mut due = lock(&held.due);
        if let Some(due) = due.take() {
            agenda.due.remove(&(due, held.number));
        }
        // Looked up with the agenda in hand: whoever gives the hold up afterwards takes it off again.
        *due = held.with(|hold| hold.wakes_at());
        if let Some(due) = *due {
            agenda.due.insert((due, held.number), Arc::clone(held));
            if due < agenda.next_look {
                agenda.next_look = due;
                self.wake.notify_one();
            }
        }
    }

    async fn renew(self: Arc<Self>, held: Arc<Held>, lease: Duration, patience: Duration) {
        let sent = Moment::now();
        let answer = extend(&self.link, &held, lease, patience).await;
        let now = Moment::now();
        let Ticket { key, owner, .. } = &held.ticket;
        match &answer {
            Ok(_) => self.reporter.report(
                key,
                owner,
                What::Renewed {
                    took: now.since(sent),
                },
            ),
            Err(error) => self.reporter.report(key, owner, What::NotRenewed { error }),
        }
        if let Some(Action::TellLost(loss)) = held.with(|hold| hold.on_renewed(sent, &answer, now)) {
            self.tell_lost(&held, loss);
        }
        self.schedule(&held);
    }

    fn tell_lost(&self, held: &Held, loss: Loss) {
        held.cancel();
        self.reporter
            .report(&held.ticket.key, &held.ticket.owner, What::Lost { loss });
    }
}

/// Sends an EXTEND: the lease that remains.
async fn extend(
    link: &Arc<Link>,
    held: &Held,
    lease: Duration,
    patience: Duration,
) -> Result<Duration, Error> {
    let command = held.ticket.extend(lease, held.fence);
    match timeout(patience, link.query::<u64>(&command)).await {
        Ok(answer) => answer.map(Duration::from_millis),
        Err(_) => Err(Error::Redis(RedisError::from(io::Error::from(
            io::ErrorKind::TimedOut,
        )))),
    }
}
