//! Acquiring the lock: rounds until one succeeds or the wait is over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::guard::Guard;
use super::health::Health;
use super::held::Held;
use super::mode::Mode;
use super::request::Request;
use super::round::{Failure, Refusals, Round};
use super::servers::Servers;
use super::task::Task;
use crate::backoff::Backoff;
use crate::clock::BootInstant;
use crate::error::{Error, NodeFailure};
use crate::events::EventKind;
use crate::identity::RequestIdentity;
use crate::owner::Owner;

/// What it takes to acquire the lock once.
struct Acquisition<'a> {
    servers: &'a Arc<Servers>,
    request: &'a Request,
    refusals: Refusals,
    /// The servers that are not asked first: they have rejected the request for good.
    rejected: Vec<bool>,
    backoff: Backoff,
}

/// Acquires the lock. Dropped, the acquisition is cancelled everywhere, in the background.
pub(super) async fn acquire<M: Mode>(servers: &Arc<Servers>, request: Request) -> Result<Guard<M>, Error> {
    let (key, begun) = (Arc::clone(&request.key), BootInstant::now());
    let acquiring = acquire_in_time(Arc::clone(servers), request, begun);
    // A guard: if nobody takes it, it is released.
    let acquiring = async { acquiring.await.map(Guard::new) };
    let outcome = Task::start(servers.renewal_thread(), acquiring).await;
    let identity = match &outcome {
        Ok(guard) => guard.held().identity.clone(),
        Err(_) => RequestIdentity::new(key, Owner::unique()),
    };
    let fence = outcome.as_ref().map(|guard| guard.held().fence);
    let took = BootInstant::now().since(begun);
    servers.report(&identity, EventKind::of_acquisition(fence, took));
    outcome
}

async fn acquire_in_time(
    servers: Arc<Servers>,
    request: Request,
    begun: BootInstant,
) -> Result<Arc<Held>, Error> {
    let mut acquisition = Acquisition {
        servers: &servers,
        request: &request,
        refusals: vec![None; servers.clients.len()],
        rejected: vec![false; servers.clients.len()],
        backoff: Backoff::new(),
    };
    let Some(wait) = request.options.wait_limit().filter(|_| request.waits) else {
        return acquisition.run().await;
    };
    let outcome = timeout(wait, acquisition.run()).await;
    outcome.unwrap_or_else(|_| Err(acquisition.timeout(BootInstant::now().since(begun))))
}

impl Acquisition<'_> {
    async fn run(&mut self) -> Result<Arc<Held>, Error> {
        if !self.request.waits {
            return self.repeat(false).await;
        }
        let (pool, key) = (self.servers.places(), &self.request.key);
        if !pool.is_contended(key)
            && let Some(outcome) = self.attempt(false).await
        {
            return outcome;
        }
        // In order of arrival in this process. The others need not be asked for a place: they have as many.
        let _turn = pool.turn(key).await;
        let mut permit = pin!(pool.permit());
        let mut backoff = Backoff::new();
        let _permit = loop {
            if let Ok(permit) = timeout(backoff.pause(Duration::MAX), &mut permit).await {
                break permit;
            }
            // The holders of other locks may wait for this task: it must not depend on them alone.
            if let Some(outcome) = self.attempt(false).await {
                return outcome;
            }
        };
        self.repeat(true).await
    }

    async fn repeat(&mut self, waits: bool) -> Result<Arc<Held>, Error> {
        loop {
            if let Some(outcome) = self.attempt(waits).await {
                return outcome;
            }
        }
    }

    /// One round, which waits for the lock or gives way to others. `None`: another one may succeed.
    async fn attempt(&mut self, waits: bool) -> Option<Result<Arc<Held>, Error>> {
        let (servers, request) = (self.servers, self.request);
        self.note_down();
        if !servers.health().has_majority() {
            if !request.waits {
                return Some(Err(self.too_few(0)));
            }
            servers.until(Health::has_majority).await;
        }
        let Some(first) = servers.health().first(|server| self.rejected[server]) else {
            return Some(Err(self.too_few(0)));
        };
        let round = Round::new(servers, request, waits, first, &mut self.refusals);
        match round.run().await {
            Ok(held) => return Some(Ok(held)),
            Err(Failure::Busy) if request.waits => servers.places().on_busy(&request.key),
            Err(Failure::Busy) => return Some(Err(Error::Busy)),
            // The next server is the first one.
            Err(Failure::FirstFailed { is_final }) => {
                self.rejected[first] |= is_final || !request.waits;
                if servers.health().is_up(first) && !self.rejected[first] {
                    sleep(self.backoff.pause(Duration::MAX)).await;
                }
            }
            // Maybe because its fences are ahead of what the others accept.
            Err(Failure::Rejected) => self.rejected[first] = true,
            Err(Failure::TooFew { agreed }) if !request.waits => {
                return Some(Err(self.too_few(agreed)));
            }
            Err(Failure::TooFew { .. }) => sleep(self.backoff.pause(Duration::MAX)).await,
        }
        None
    }

    /// Servers that are known to be down are not asked.
    fn note_down(&mut self) {
        let health = self.servers.health();
        for (server, refusal) in self.refusals.iter_mut().enumerate() {
            if !health.is_up(server) {
                refusal.get_or_insert_with(Error::no_response);
            }
        }
    }

    /// The wait is over: because others held the lock, or because too many servers failed.
    fn timeout(&self, waited: Duration) -> Error {
        let failed = self.refusals.iter().flatten();
        let failed = failed.filter(|error| !matches!(error, Error::Busy)).count();
        let is_blocked = self.servers.majority.is_blocked_by(failed);
        Error::timeout(&self.request.key, waited, is_blocked.then(|| self.too_few(0)))
    }

    fn too_few(&self, agreed: usize) -> Error {
        let failures = self.refusals.iter().zip(&self.servers.clients);
        let failures = failures.filter_map(|(error, client)| {
            let server = client.address();
            Some(NodeFailure::at(server, error.clone()?.at_server(server)))
        });
        self.servers.majority.missed(agreed, failures.collect())
    }
}
