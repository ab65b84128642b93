//! What the locks of a process share: the table of their requests, the links, and the background; and what the end of
//! a thread, or of the process, waits for.
//!
//! Three rules make it safe to lose replies, connections and servers:
//!
//! - Only the reply to the last sending of a request counts.
//! - A request without a reply is sent again, until one arrives or its time is over.
//! - What was, or may have been, granted to nobody is given back.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, from_redis_value};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::command::{Answer, ProcessName, Request, milliseconds};
use crate::error::{Error, Lost};
use crate::events::{End, Event, EventKind, Hook};
use crate::hold::{Backoff, BootInstant};
use crate::link::{Link, Links, Sent};
use crate::table::{Held, Outcome, Sending, Step, Table};

/// How many times the response timeout a caller waits for a server that does not reply.
const ATTEMPTS: u32 = 3;
/// How long it is tried to give a request back, at least: a server that hangs may grant it long after it was sent.
pub(crate) const GIVEN_BACK_FOR: Duration = Duration::from_secs(30);
/// Copies of a request that a lost connection, or a redirection, may still deliver arrive within this time.
pub(crate) const LATE_COPIES: Duration = Duration::from_millis(500);

/// What the background runs.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Session {
    pub links: Links,
    /// Whether connections redirect requests, and send them again by themselves.
    pub is_cluster: bool,
    pub process: Arc<ProcessName>,
    pub exit: Arc<Exit>,
    hook: Hook,
    numbers: AtomicU64,
    table: Mutex<Table>,
    runtime: runtime::Handle,
    tasks: UnboundedSender<Task>,
    /// There is something to do for the background: at once, or sooner than it knows.
    pub wakeup: Notify,
    /// When it wakes by itself, in us after boot.
    sleeps_until: AtomicU64,
    /// Whether no handle is left.
    pub is_closing: AtomicBool,
    /// The process that has the background.
    pid: u32,
}

impl Session {
    pub fn new(
        links: Links,
        is_cluster: bool,
        hook: Hook,
        runtime: runtime::Handle,
        tasks: UnboundedSender<Task>,
        pid: u32,
    ) -> Self {
        Self {
            links,
            is_cluster,
            process: Arc::new(ProcessName::new()),
            exit: Arc::default(),
            hook,
            numbers: AtomicU64::new(0),
            table: Mutex::new(Table::new()),
            runtime,
            tasks,
            wakeup: Notify::new(),
            sleeps_until: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            pid,
        }
    }

    /// The table. Nothing that holds this lock waits.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics under it, and each change is a whole one.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other request of this process has.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// How long a caller waits for a server that does not reply.
    pub fn patience(&self) -> Duration {
        self.links.timeout() * ATTEMPTS
    }

    /// Whether this is the process that has the background.
    pub fn is_at_home(&self) -> bool {
        process::id() == self.pid
    }

    /// That this process has the background, and that it still runs.
    pub fn check_background(&self) -> Result<(), Error> {
        if !self.is_at_home() {
            return Err(Error::Invalid(
                "this process was forked after the locks were opened: open them in each process".into(),
            ));
        }
        match self.tasks.is_closed() {
            true => Err(Error::no_background()),
            false => Ok(()),
        }
    }

    pub fn report(&self, request: &Request, kind: impl FnOnce() -> EventKind) {
        if !self.hook.is_deaf() {
            self.hook.report(&Event {
                key: Arc::clone(&request.key),
                owner: request.owner().clone(),
                kind: kind(),
            });
        }
    }

    // Where work is done.

    /// Does this in the calling task, by the link of its runtime, if it has one; otherwise in the background.
    pub async fn run<T: Send + 'static, W>(&self, work: impl FnOnce(Arc<Link>) -> W) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        match self.links.usable_here().await {
            Some(link) => work(link).await,
            None => {
                self.run_elsewhere(work(Arc::clone(self.links.background())))
                    .await
            }
        }
    }

    /// Does this in the background, while the calling task waits for it.
    pub async fn run_elsewhere<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let mut elsewhere = Elsewhere {
            session: self,
            task: Some(self.runtime.spawn(work)),
        };
        let outcome = match &mut elsewhere.task {
            Some(task) => task.await.ok(),
            None => None,
        };
        elsewhere.task = None;
        outcome.unwrap_or_else(|| Err(Error::no_background()))
    }

    /// Does this in the background, whatever becomes of the calling task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // The background outlives its handles, unless the process was forked, or ended the runtime that it was given: then
        // leases end by themselves.
        let _ = self.tasks.send(Box::pin(task));
    }

    /// The background sleeps until then.
    pub fn set_sleep(&self, until: BootInstant) {
        self.sleeps_until.store(until.as_micros(), Ordering::SeqCst);
    }

    // Commands.

    /// Sends a command once.
    pub async fn send(&self, command: impl FnOnce() -> Cmd) -> Result<Value, Error> {
        let turn = self.links.here().turn().await?;
        turn.send(command()).reply().await
    }

    /// Sends a question, and sends it again after a lost reply, within this time.
    pub async fn query(&self, command: Cmd, is_idempotent: bool, within: Duration) -> Result<Value, Error> {
        let (mut last, mut backoff) = (Error::no_response(), Backoff::default());
        let asking = async {
            loop {
                let turn = self.links.here().turn().await?;
                match turn.send(command.clone()).reply().await {
                    Err(error) if is_idempotent && error.is_ambiguous() => last = error,
                    outcome => return outcome,
                }
                sleep(backoff.pause()).await;
            }
        };
        let outcome = timeout(within, asking).await;
        outcome.unwrap_or_else(|_| Err(last.at(self.links.label())))
    }

    // Requests.

    /// The reply to an ACQUIRE.
    pub fn on_reply(self: &Arc<Self>, request: &Arc<Request>, sending: Sending, reply: Result<Value, Error>) {
        let step = self.table().on_reply(request, sending, reply, BootInstant::now());
        self.perform(step, request);
    }

    /// Waits for the outcome of a request.
    pub async fn outcome(&self, request: &Request) -> Outcome {
        poll_fn(|context| {
            self.table()
                .poll_outcome(request.number, BootInstant::now(), context.waker())
        })
        .await
    }

    /// The answers of an inbox, by a call of GRANTS that was first sent at `sent_at`.
    pub fn on_answers(self: &Arc<Self>, sent_at: BootInstant, waited: Duration, answers: &[Value]) {
        let now = BootInstant::now();
        self.table().set_trouble(None, now);
        for answer in answers.iter().filter_map(Answer::of) {
            if let Some(number) = self.process.number(answer.id) {
                let step = self.table().on_answer(number, &answer, (sent_at, waited), now);
                let request = Request::answered(number, answer.key, answer.owner, &self.process);
                self.perform(step, &Arc::new(request));
            }
        }
    }

    /// Tells for whom a request waits that has waited for long.
    pub fn notice(self: &Arc<Self>) {
        if self.hook.is_deaf() {
            return;
        }
        let Some((request, waited)) = self.table().take_noticed(BootInstant::now()) else {
            return;
        };
        let session = Arc::clone(self);
        self.spawn(async move {
            let reply = session.send(|| request.holder()).await;
            let (is_queued, _) = session.table().is_queued(request.number);
            if is_queued {
                let holder = reply
                    .ok()
                    .and_then(|owner| from_redis_value(owner).ok().flatten());
                session.report(&request, || EventKind::StillWaiting { holder, waited });
            }
        });
    }

    pub fn perform(self: &Arc<Self>, step: Step, request: &Arc<Request>) {
        if let Some((request, ahead)) = step.waits {
            self.report(&request, || EventKind::Waiting { ahead });
        }
        if let Some(waker) = step.woken {
            waker.wake();
        }
        if let Some(has_copies) = step.gives_back {
            self.give_back(
                Arc::clone(request),
                None,
                has_copies,
                self.exit.begin_in_background(),
            );
        }
        if step.is_urgent {
            self.wakeup.notify_one();
        }
    }

    /// A request is over, without a lock: what the server has of it is given back. `sent` is the sending that has no reply
    /// yet.
    pub fn leave(self: &Arc<Self>, request: &Arc<Request>, sent: Option<Sent>, pending: Pending) {
        let (left, has_parked) = {
            let mut table = self.table();
            (table.leave(request.number), table.has_parked())
        };
        if has_parked {
            self.wakeup.notify_one();
        }
        match left {
            Some(has_copies) => self.give_back(Arc::clone(request), sent, has_copies, pending),
            None => {
                // Its reply tells whether there is anything to give back.
                if let Some(mut sent) = sent {
                    let (session, request) = (Arc::clone(self), Arc::clone(request));
                    self.spawn(async move {
                        let (has_it, has_copies) = match sent.reply().await {
                            Ok(reply) => (reply != Value::Nil, false),
                            Err(error) => (error.is_ambiguous(), true),
                        };
                        if has_it {
                            session.take_back(&request, None, has_copies, pending).await;
                        }
                    });
                }
            }
        }
    }

    /// Takes a request back in the background: it leaves the queue, and what it was granted is released.
    pub fn give_back(
        self: &Arc<Self>,
        request: Arc<Request>,
        sent: Option<Sent>,
        has_copies: bool,
        pending: Pending,
    ) {
        let session = Arc::clone(self);
        self.spawn(async move { session.take_back(&request, sent, has_copies, pending).await });
    }

    async fn take_back(
        self: &Arc<Self>,
        request: &Request,
        sent: Option<Sent>,
        mut has_copies: bool,
        pending: Pending,
    ) {
        // What is sent from here could overtake it.
        if let Some(mut sent) = sent {
            has_copies |= sent.reply().await.is_err_and(|error| error.is_ambiguous());
        }
        let until = BootInstant::now() + request.plan.lease.max(GIVEN_BACK_FOR);
        self.release_until(request, until).await;
        drop(pending);
        if has_copies {
            sleep(LATE_COPIES).await;
            self.release_until(request, until).await;
        }
    }

    /// Takes a request back. What cannot be taken back by then ends with its lease.
    pub async fn release_until(&self, request: &Request, until: BootInstant) {
        let mut backoff = Backoff::default();
        while let Err(error) = self.send(|| request.release(None)).await
            && error.is_transient()
            && BootInstant::now() < until
        {
            sleep(backoff.pause()).await;
        }
    }

    // Holds.

    /// The lock is granted: its lease is renewed from now on.
    pub fn watch(self: &Arc<Self>, held: &Arc<Held>) {
        if self.tasks.is_closed() {
            return self.lose(held, Lost::LeaseExpired);
        }
        let wakes_at = held.hold().wakes_at();
        let sleeps_until = self.sleeps_until.load(Ordering::SeqCst);
        let is_early = wakes_at.is_some_and(|at| at.as_micros() < sleeps_until);
        // A loss is noticed, and a guard that is dropped is released, without waiting for a connection.
        if is_early || !self.links.background().is_open() {
            self.wakeup.notify_one();
        }
    }

    /// The reply to an EXTEND that was sent at `sent_at`, or why there is none.
    pub fn on_extended(
        self: &Arc<Self>,
        held: &Arc<Held>,
        sent_at: BootInstant,
        reply: Result<Value, Error>,
    ) -> Result<Duration, Error> {
        let (lease, now) = (reply.and_then(lease_of), BootInstant::now());
        let (lost, remaining) = {
            let mut hold = held.hold();
            hold.on_extended(sent_at, &lease, now);
            (hold.lost(now), hold.remaining(now))
        };
        match lost {
            Some(lost) => {
                self.lose(held, lost);
                Err(Error::Lost(lost))
            }
            None => lease.map(|_| remaining),
        }
    }

    /// The same, for the EXTEND that renews the lease.
    pub fn on_renewed(self: &Arc<Self>, held: &Arc<Held>, sent_at: BootInstant, reply: Result<Value, Error>) {
        let (lease, now) = (reply.and_then(lease_of), BootInstant::now());
        let (is_held, lost, was_failing) = {
            let mut hold = held.hold();
            hold.on_renewed(sent_at, &lease, now);
            (
                hold.is_held(now),
                hold.lost(now),
                hold.set_failing(lease.is_err()),
            )
        };
        match (lease, lost) {
            (_, Some(lost)) => self.lose(held, lost),
            (Err(error), None) if is_held => self.report(&held.request, || EventKind::RenewFailed { error }),
            (Ok(_), None) if was_failing => self.report(&held.request, || EventKind::RenewedAgain),
            _ => {}
        }
        self.table().set_timer(held.request.number);
    }

    /// The background has ended before its handles: nothing is renewed any more, and no answers are read.
    pub fn on_background_ended(self: &Arc<Self>) {
        let (held, woken) = {
            let mut table = self.table();
            let held: Vec<_> = table.holds().map(Arc::clone).collect();
            (held, table.refuse_waiting(&Error::no_background()))
        };
        woken.into_iter().for_each(Waker::wake);
        held.iter().for_each(|held| self.lose(held, Lost::LeaseExpired));
    }

    /// A hold is lost: its guard is told. What may be left of it is given back.
    pub fn lose(self: &Arc<Self>, held: &Arc<Held>, lost: Lost) {
        let number = held.request.number;
        let is_known = {
            let mut table = self.table();
            let Some((_, is_known)) = table.held(number) else {
                return;
            };
            table.leave(number);
            is_known
        };
        held.end();
        if is_known {
            let (how, time) = (End::Lost(lost), held.hold().held(BootInstant::now()));
            self.report(&held.request, || EventKind::Ended { how, held: time });
        }
        if !lost.leaves_nothing() || held.has_copies() {
            let pending = self.exit.begin_in_background();
            self.give_back(Arc::clone(&held.request), None, held.has_copies(), pending);
        }
    }
}

/// Ends a task whose caller is gone. The caller's thread, if it ends, waits for what the task leaves.
struct Elsewhere<'a, T: Send + 'static> {
    session: &'a Session,
    task: Option<JoinHandle<T>>,
}

impl<T: Send> Drop for Elsewhere<'_, T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            let pending = self.session.exit.begin();
            task.abort();
            self.session.spawn(async move {
                let _ = task.await;
                drop(pending);
            });
        }
    }
}

/// The reply to EXTEND.
fn lease_of(reply: Value) -> Result<Duration, Error> {
    milliseconds(&reply).ok_or_else(Error::unreadable)
}

/// How long the end of a thread, or of the last handle outside of async code, waits for releases.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// How many releases are on their way.
#[derive(Default)]
pub(crate) struct Exit {
    pending: AtomicUsize,
    /// How many threads wait. To notify nobody costs a system call, too.
    waiting: Mutex<usize>,
    settled: Condvar,
    /// The same for tasks.
    settled_tasks: Notify,
}

/// A release on its way. Whoever gives up a lock takes one, and it is dropped when that is done.
pub(crate) struct Pending(Arc<Exit>);

impl Exit {
    /// The calling thread waits for it when it ends, as the main thread does when `main` returns.
    pub fn begin(self: &Arc<Self>) -> Pending {
        // A thread that is ending already does not wait.
        let _ = AT_THREAD_END.try_with(|ends| ends.add(self));
        self.begin_in_background()
    }

    /// Only the last handle, and [`Locks::shutdown`](crate::Locks::shutdown), wait for it.
    pub fn begin_in_background(self: &Arc<Self>) -> Pending {
        self.pending.fetch_add(1, Ordering::SeqCst);
        Pending(Arc::clone(self))
    }

    fn is_settled(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Waits for all releases, however long they take.
    pub async fn settle(&self) {
        loop {
            let settled = self.settled_tasks.notified();
            if self.is_settled() {
                return;
            }
            settled.await;
        }
    }

    /// Waits for all releases, but not for long: a server may be gone.
    pub fn wait(&self) {
        self.wait_until(Instant::now() + LONGEST_WAIT);
    }

    fn wait_until(&self, by: Instant) {
        let limit = by.saturating_duration_since(Instant::now());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        let waited = self
            .settled
            .wait_timeout_while(waiting, limit, |_| !self.is_settled());
        *waited.unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Self(exit) = self;
        if exit.pending.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        exit.settled_tasks.notify_waiters();
        // Who waits has looked at the number before, or will look at it again.
        if *exit.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            exit.settled.notify_all();
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd(RefCell::new(Vec::new())) };
}

/// What this thread waits for when it ends. A process that returns from `main`, or calls `exit`, ends its main thread
/// first: without this, guards dropped just before would keep their locks for the rest of a lease.
struct AtThreadEnd(RefCell<Vec<Weak<Exit>>>);

impl AtThreadEnd {
    fn add(&self, exit: &Arc<Exit>) {
        let mut exits = self.0.borrow_mut();
        let is_known = |known: &Weak<Exit>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(exit));
        if !exits.iter().any(is_known) {
            exits.retain(|known| known.strong_count() > 0);
            exits.push(Arc::downgrade(exit));
        }
    }
}

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        let by = Instant::now() + LONGEST_WAIT;
        for exit in self.0.take().iter().filter_map(Weak::upgrade) {
            exit.wait_until(by);
        }
    }
}
