//! One attempt: the servers, then the fence.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ask::ask;
use super::doorway::Doorway;
use super::enter::enter;
use super::fences::Fences;
use super::held::Held;
use super::request::Request;
use super::servers::Servers;
use super::task::give_way;
use crate::acquire::AcquireRequest;
use crate::error::Error;
use crate::guard::Guard;
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;
use crate::owner::Owner;

/// After a request failed, the next one is sent not before this time.
const PAUSE: Duration = Duration::from_millis(50);

/// Why servers did not grant the lock, by server: the last error of each.
pub(super) type Refusals = Vec<Option<Error>>;

/// Why a round failed. What it was granted is given back.
pub(super) enum Failure {
    /// Others hold the lock.
    Busy,
    /// The first server has not granted the lock, or the doorway, and another one may be asked.
    FirstFailed { is_final: bool },
    /// Too many servers rejected the request for good.
    Rejected,
    /// Too few servers are up, or it took too long.
    TooFew { agreed: usize },
}

/// What happened at a server.
enum Step {
    Asked(Result<Guard, Error>),
    Raised(Result<u64, Error>),
}

type Steps = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, Step)> + Send>>>;

pub(super) struct Round<'a> {
    servers: &'a Arc<Servers>,
    request: &'a Request,
    identity: RequestIdentity,
    /// Whether it waits in the queues of the servers. If not, it gives way at once.
    waits: bool,
    first: usize,
    /// From this fence on, the servers number their grants.
    min_fence: Option<u64>,
    refusals: &'a mut Refusals,
    /// By server.
    grants: Vec<Option<Guard>>,
    fences: Fences,
    steps: Steps,
    /// When it fails, unless it waits for a client that has the lock.
    deadline: Option<Instant>,
    /// By server, whether it has not granted the lock at once, and for how many because others hold it.
    missed: Vec<bool>,
    busy: usize,
    /// How many servers rejected the request for good.
    rejections: usize,
}

impl<'a> Round<'a> {
    pub fn new(
        servers: &'a Arc<Servers>,
        request: &'a Request,
        waits: bool,
        first: usize,
        refusals: &'a mut Refusals,
    ) -> Self {
        let count = servers.clients.len();
        Self {
            servers,
            request,
            // Cancellations of the round before do not concern this one.
            identity: RequestIdentity::new(Arc::clone(&request.key), Owner::unique()),
            waits,
            first,
            min_fence: None,
            refusals,
            grants: (0..count).map(|_| None).collect(),
            fences: Fences::new(count, servers.majority.needed()),
            steps: FuturesUnordered::new(),
            deadline: None,
            missed: vec![false; count],
            busy: 0,
            rejections: 0,
        }
    }

    /// Dropped, its grants are released and its requests cancelled, in the background.
    pub async fn run(mut self) -> Result<Arc<Held>, Failure> {
        self.ask_all().await?;
        let servers = self.servers;
        let mut without_majority = pin!(servers.until(|health| !health.has_majority()));
        let mut tick = pin!(sleep_until(self.next_tick()));
        loop {
            if let Some(fence) = self.settled() {
                return self.publish(fence);
            }
            self.check_hope()?;
            tokio::select! {
                // What there is to know comes before the time is up.
                biased;
                Some((server, step)) = self.steps.next() => self.on_step(server, step),
                () = &mut tick => {
                    self.on_tick().await?;
                    tick.as_mut().reset(self.next_tick());
                }
                () = &mut without_majority => return Err(self.too_few()),
            }
        }
    }

    /// A timer that runs already when the servers grant the lock: to start one then would delay the hand-over.
    fn next_tick(&self) -> Instant {
        let tick = Instant::now() + self.servers.node_timeout.min(self.request.options.lease);
        self.deadline.map_or(tick, |deadline| tick.min(deadline))
    }

    async fn on_tick(&mut self) -> Result<(), Failure> {
        for server in 0..self.grants.len() {
            let is_lost = |grant: &Guard| grant.lost_reason().is_some();
            if self.grants[server].as_ref().is_some_and(is_lost) {
                self.missed[server] = true;
                self.take_back(server);
                self.ask_again(server);
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.on_deadline().await?;
        }
        Ok(())
    }

    async fn ask_all(&mut self) -> Result<(), Failure> {
        let doorway = if self.waits {
            Some(self.enter_doorway().await?)
        } else {
            self.ask_first().await?;
            None
        };
        let health = self.servers.health();
        let asked_already = (!self.waits).then_some(self.first);
        for server in (0..self.grants.len()).filter(|server| Some(*server) != asked_already) {
            if health.is_up(server) {
                self.ask(server, self.identity.clone(), Duration::ZERO, doorway.clone());
                self.send_last().await;
            } else {
                self.missed[server] = true;
                self.ask_again(server);
            }
        }
        if let Some(doorway) = doorway {
            doorway.leave();
        }
        Ok(())
    }

    /// The server works while the next request is made. Replies that have arrived are polled before it.
    async fn send_last(&mut self) {
        while let Some(Some((server, step))) = self.steps.next().now_or_never() {
            self.on_step(server, step);
        }
        give_way().await;
    }

    /// All at once then, in the same order as other clients, to wait in their queues.
    async fn enter_doorway(&mut self) -> Result<Arc<Doorway>, Failure> {
        let entered = enter(self.servers, self.first, self.request).await;
        let doorway = self.first_outcome(entered)?;
        self.min_fence = Some(doorway.fence());
        Ok(Arc::new(doorway))
    }

    /// Then the others: of several clients that try at once, one has the lock.
    async fn ask_first(&mut self) -> Result<(), Failure> {
        let request = self.acquisition(self.identity.clone());
        let asked = ask(self.servers, self.first, request, false, None).await;
        let guard = self.first_outcome(asked)?;
        self.min_fence = Some(guard.fence());
        self.on_granted(self.first, guard);
        Ok(())
    }

    fn first_outcome<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Failure> {
        outcome.map_err(|error| {
            if matches!(error, Error::Busy) {
                return Failure::Busy;
            }
            let is_final = is_final(&error);
            self.refusals[self.first] = Some(error);
            Failure::FirstFailed { is_final }
        })
    }

    /// Asks a server again, to wait in its queue, if this request waits.
    fn ask_again(&mut self, server: usize) {
        if self.waits {
            // The cancellation of the last request must not end this one.
            self.ask(server, self.identity.with_new_id(), PAUSE, None);
        }
    }

    fn ask(
        &mut self,
        server: usize,
        identity: RequestIdentity,
        pause: Duration,
        doorway: Option<Arc<Doorway>>,
    ) {
        let request = self.acquisition(identity);
        let servers = Arc::clone(self.servers);
        let waits = self.waits;
        self.steps.push(Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
                servers.until(|health| health.is_up(server)).await;
            }
            let asked = ask(&servers, server, request, waits, doorway).await;
            (server, Step::Asked(asked))
        }));
    }

    fn acquisition(&self, identity: RequestIdentity) -> AcquireRequest {
        let is_exclusive = self.request.options.limit == Limit::Mutex;
        AcquireRequest {
            identity,
            options: Options {
                // Until the guard is handed out.
                max_hold: None,
                renews: true,
                ..self.request.options
            },
            replicas: None,
            min_fence: self.min_fence.filter(|_| is_exclusive),
        }
    }

    fn on_step(&mut self, server: usize, step: Step) {
        match step {
            Step::Asked(Ok(guard)) => self.on_granted(server, guard),
            Step::Asked(Err(error)) => self.on_refused(server, error),
            Step::Raised(Ok(fence)) => self.fences.on_raised(server, fence),
            Step::Raised(Err(_)) => self.fences.on_unanswered(server),
        }
    }

    fn on_granted(&mut self, server: usize, guard: Guard) {
        self.refusals[server] = None;
        self.fences.on_granted(server, guard.fence());
        self.grants[server] = Some(guard);
        if self.deadline.is_none() {
            self.deadline = Some(self.new_deadline());
        }
    }

    fn new_deadline(&self) -> Instant {
        // At random, so that of clients that wait for each other one gives way first.
        let timeouts = if self.waits {
            rand::random_range(1.0..2.0)
        } else {
            4.0
        };
        Instant::now() + self.servers.node_timeout.mul_f64(timeouts)
    }

    /// Others may wait for what this client holds, and it for what they hold. If so, it gives up everything, its places
    /// too, and passes the doorway again: only then do the queues agree. Who has the lock on a majority waits for nobody.
    async fn on_deadline(&mut self) -> Result<(), Failure> {
        if self.waits && self.servers.is_held(&self.request.key).await {
            self.deadline = Some(self.new_deadline());
            return Ok(());
        }
        Err(self.too_few())
    }

    fn on_refused(&mut self, server: usize, error: Error) {
        let is_first = !std::mem::replace(&mut self.missed[server], true);
        self.busy += usize::from(is_first && matches!(error, Error::Busy));
        if is_final(&error) {
            self.rejections += 1;
        } else {
            self.ask_again(server);
        }
        self.refusals[server] = Some(error);
    }

    /// The grant does not count any more. Dropped, it is released.
    fn take_back(&mut self, server: usize) {
        self.grants[server] = None;
        self.fences.on_lost(server);
        if self.grants.iter().all(Option::is_none) {
            self.deadline = None;
        }
    }

    /// The fence of the lock if a majority holds it, 0 for a shared one. Sends what it takes to get there.
    fn settled(&mut self) -> Option<u64> {
        let granted = self.grants.iter().flatten().count();
        if granted < self.servers.majority.needed() {
            return None;
        }
        if self.request.options.limit != Limit::Mutex {
            return Some(0);
        }
        if let Some(fence) = self.fences.confirmed() {
            return Some(fence);
        }
        if let Some((to, below)) = self.fences.raise() {
            below.into_iter().for_each(|server| self.raise(server, to));
        }
        None
    }

    fn raise(&mut self, server: usize, to: u64) {
        let Some(guard) = &self.grants[server] else {
            return;
        };
        let raising = guard.raise(self.request.options.lease, to);
        let node_timeout = self.servers.node_timeout;
        self.steps.push(Box::pin(async move {
            let reply = timeout(node_timeout, raising).await;
            let outcome = reply.unwrap_or_else(|_| Err(Error::no_response()));
            if outcome.is_err() {
                sleep(PAUSE).await;
            }
            (server, Step::Raised(outcome.map(|()| to)))
        }));
    }

    /// Whether there can still be a majority.
    fn check_hope(&self) -> Result<(), Failure> {
        let majority = self.servers.majority;
        if majority.is_blocked_by(self.rejections) {
            Err(Failure::Rejected)
        } else if self.waits {
            Ok(())
        } else if majority.is_blocked_by(self.busy) {
            Err(Failure::Busy)
        } else if majority.is_blocked_by(self.missed.iter().filter(|missed| **missed).count()) {
            Err(self.too_few())
        } else {
            Ok(())
        }
    }

    fn too_few(&self) -> Failure {
        Failure::TooFew {
            agreed: self.grants.iter().flatten().count(),
        }
    }

    /// Hands the lock out, unless that took longer than its leases. What is still in progress joins it later.
    fn publish(&mut self, fence: u64) -> Result<Arc<Held>, Failure> {
        let health = self.servers.health();
        let is_late = |(server, grant): (usize, &Option<Guard>)| {
            health.is_up(server) && grant.as_ref().is_none_or(|guard| guard.fence() == 0)
        };
        let is_complete = !self.grants.iter().enumerate().any(is_late);
        let members = self.grants.drain(..).flatten().collect();
        let (identity, options) = (self.identity.clone(), &self.request.options);
        let held = Held::new(self.servers, identity, fence, options, members);
        if held.remaining().is_zero() {
            held.give_up();
            return Err(Failure::TooFew { agreed: 0 });
        }
        if !is_complete {
            let late = join_late(Arc::clone(&held), std::mem::take(&mut self.steps));
            self.servers.renewal_thread().spawn_here(late);
        }
        Ok(held)
    }
}

/// Whether the server would answer the same later.
fn is_final(error: &Error) -> bool {
    !(error.is_transient() || matches!(error, Error::Busy | Error::Lost(_)))
}

/// What is granted late joins the lock, for a while and as long as it is held. The rest is cancelled.
async fn join_late(held: Arc<Held>, mut steps: Steps) {
    let joining = async {
        while let Some((_, step)) = steps.next().await {
            if let Step::Asked(Ok(guard)) = step {
                held.join(guard);
            }
        }
        pending::<()>().await;
    };
    tokio::select! {
        () = held.token().cancelled() => {}
        _ = timeout(held.servers.node_timeout, joining) => {}
    }
}
