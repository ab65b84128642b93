//! One attempt: the first server, then the others, then the fence.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::acquire::{Refusals, Request};
use super::ask::ask;
use super::fences::{Fences, Next};
use super::held::Held;
use super::servers::Servers;
use crate::acquire::AcquireRequest;
use crate::error::Error;
use crate::guard::Guard;
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;

/// After a request failed, the next one is sent not before this time.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a round failed. What it was granted is given back.
pub(super) enum Failure {
    /// Others hold the lock.
    Busy,
    /// The first server has not granted the lock, and another one may be asked.
    FirstFailed { is_final: bool },
    /// So many of the others rejected the request for good that there can be no majority.
    OthersRejected,
    /// All have replied, and too few agreed.
    TooFew { agreed: usize },
    /// The hold on the first server was lost, too few servers are up, or it took too long.
    GaveUp,
}

/// What happened at a server.
enum Step {
    Asked(Result<Guard, Error>),
    Raised(Result<u64, Error>),
    Lost,
}

type Steps = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, Step)> + Send>>>;

pub(super) struct Round<'a> {
    servers: &'a Arc<Servers>,
    request: &'a Request,
    identity: &'a RequestIdentity,
    first: usize,
    refusals: &'a mut Refusals,
    /// By server.
    grants: Vec<Option<Guard>>,
    fences: Fences,
    steps: Steps,
    /// How many requests to servers that are up are in progress.
    in_progress: usize,
    rejections: usize,
}

impl<'a> Round<'a> {
    pub fn new(
        servers: &'a Arc<Servers>,
        request: &'a Request,
        identity: &'a RequestIdentity,
        first: usize,
        refusals: &'a mut Refusals,
    ) -> Self {
        let count = servers.clients.len();
        Self {
            servers,
            request,
            identity,
            first,
            refusals,
            grants: (0..count).map(|_| None).collect(),
            fences: Fences::new(count, servers.majority.needed()),
            steps: FuturesUnordered::new(),
            in_progress: 0,
            rejections: 0,
        }
    }

    /// Dropped, its grants are released and its requests cancelled, in the background.
    pub async fn run(&mut self) -> Result<Arc<Held>, Failure> {
        self.ask_first().await?;
        self.ask_others();
        // The queue of the first configured server is that of the lock: who has come to its head keeps that place. The
        // others have come to terms with each other, and with that one, by giving way.
        let patience = self.servers.node_timeout * if self.request.waits { 1 } else { 4 };
        let gives_way_at = Instant::now() + patience;
        let gives_way = self.first > 0 || !self.request.waits;
        loop {
            if let Some(fence) = self.settled() {
                return self.publish(fence);
            }
            self.check_hope()?;
            tokio::select! {
                Some((server, step)) = self.steps.next() => self.on_step(server, step)?,
                () = sleep_until(gives_way_at), if gives_way => return Err(Failure::GaveUp),
                () = self.servers.until(|health| !health.has_majority()) => return Err(Failure::GaveUp),
            }
        }
    }

    async fn ask_first(&mut self) -> Result<(), Failure> {
        let request = self.acquisition(self.identity.clone(), None);
        match ask(self.servers, self.first, request, self.request.waits).await {
            Ok(guard) => self.on_granted(self.first, guard),
            Err(Error::Busy) => return Err(Failure::Busy),
            Err(error) => {
                let is_final = is_final(&error);
                self.refusals.0[self.first] = Some(error);
                return Err(Failure::FirstFailed { is_final });
            }
        }
        Ok(())
    }

    fn ask_others(&mut self) {
        let health = self.servers.health();
        self.refusals.note_down(&health);
        let first = self.first;
        for server in (0..self.grants.len()).filter(|server| *server != first) {
            // Without waiting, one that is down is not asked.
            if self.request.waits || health.is_up(server) {
                self.ask(server, self.identity.clone(), Duration::ZERO);
            }
        }
    }

    /// Asks a server again, if the request waits.
    fn ask_again(&mut self, server: usize) {
        if self.request.waits {
            // The cancellation of the last request must not end this one.
            self.ask(server, self.identity.with_new_id(), PAUSE);
        }
    }

    /// Asks a server, as soon as it is up.
    fn ask(&mut self, server: usize, identity: RequestIdentity, pause: Duration) {
        let min_fence = self.grants[self.first].as_ref().map(Guard::fence);
        let is_exclusive = self.request.options.limit == Limit::Mutex;
        let request = self.acquisition(identity, min_fence.filter(|_| is_exclusive));
        let (servers, waits) = (Arc::clone(self.servers), self.request.waits);
        self.in_progress += 1;
        self.steps.push(Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            if waits {
                servers.until(|health| health.is_up(server)).await;
            }
            (server, Step::Asked(ask(&servers, server, request, waits).await))
        }));
    }

    fn acquisition(&self, identity: RequestIdentity, min_fence: Option<u64>) -> AcquireRequest {
        AcquireRequest {
            identity,
            options: Options {
                // Until the guard is handed out.
                max_hold: None,
                renews: true,
                ..self.request.options
            },
            replicas: None,
            min_fence,
        }
    }

    fn on_step(&mut self, server: usize, step: Step) -> Result<(), Failure> {
        self.in_progress -= usize::from(!matches!(step, Step::Lost));
        match step {
            Step::Asked(Ok(guard)) => self.on_granted(server, guard),
            Step::Asked(Err(error)) => {
                if is_final(&error) {
                    self.rejections += 1;
                } else {
                    self.ask_again(server);
                }
                self.refusals.0[server] = Some(error);
            }
            Step::Raised(Ok(fence)) => self.fences.on_raised(server, fence),
            Step::Raised(Err(_)) => self.fences.on_unanswered(server),
            Step::Lost if server == self.first => return Err(Failure::GaveUp),
            Step::Lost => {
                self.grants[server] = None;
                self.fences.on_lost(server);
                self.ask_again(server);
            }
        }
        Ok(())
    }

    fn on_granted(&mut self, server: usize, guard: Guard) {
        self.refusals.0[server] = None;
        self.fences.on_granted(server, guard.fence());
        let lost = guard.token().cancelled_owned();
        self.steps.push(Box::pin(async move {
            lost.await;
            (server, Step::Lost)
        }));
        self.grants[server] = Some(guard);
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
        match self.fences.next() {
            Next::Confirmed(fence) => Some(fence),
            Next::Wait => None,
            Next::Raise(to, below) => {
                below.into_iter().for_each(|server| self.raise(server, to));
                None
            }
        }
    }

    fn raise(&mut self, server: usize, to: u64) {
        let Some(guard) = &self.grants[server] else {
            return;
        };
        self.in_progress += 1;
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
        if self.servers.majority.is_blocked_by(self.rejections) {
            return Err(Failure::OthersRejected);
        }
        if self.request.waits || self.in_progress > 0 {
            return Ok(());
        }
        let agreed = self.grants.iter().flatten().count();
        let busy = |error: &Option<Error>| matches!(error, Some(Error::Busy));
        let others_hold = self.refusals.0.iter().filter(|error| busy(error)).count();
        if self.servers.majority.is_blocked_by(others_hold) {
            return Err(Failure::Busy);
        }
        Err(Failure::TooFew { agreed })
    }

    /// Hands the lock out, unless that took longer than its leases. What is still in progress joins it later.
    fn publish(&mut self, fence: u64) -> Result<Arc<Held>, Failure> {
        let health = self.servers.health();
        let is_late = |(server, grant): (usize, &Option<Guard>)| {
            health.is_up(server) && grant.as_ref().is_none_or(|guard| guard.fence() == 0)
        };
        let is_complete = self.in_progress == 0 || !self.grants.iter().enumerate().any(is_late);
        let members = self.grants.drain(..).flatten().collect();
        let (identity, options) = (self.identity.clone(), &self.request.options);
        let held = Held::new(self.servers, identity, fence, options, members);
        if held.remaining().is_zero() {
            held.give_up();
            return Err(Failure::GaveUp);
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
