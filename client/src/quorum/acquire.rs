//! Acquiring the lock: rounds until one succeeds or the wait is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::health::Health;
use super::held::Held;
use super::majority::Majority;
use super::round::{Failure, Round};
use super::servers::Servers;
use crate::backoff::Backoff;
use crate::clock::BootInstant;
use crate::error::{Error, NoQuorum, NodeFailure};
use crate::events::EventKind;
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;

/// A lock to acquire, and how.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub key: Arc<[u8]>,
    pub options: Options,
    /// Whether it waits while others hold the lock.
    pub waits: bool,
}

/// Why servers did not grant the lock, by server: the last error of each.
pub(super) struct Refusals(pub Vec<Option<Error>>);

/// Acquires the lock. Dropped, the acquisition is cancelled everywhere, in the background.
pub(super) async fn acquire(servers: &Arc<Servers>, request: &Request) -> Result<Arc<Held>, Error> {
    let begun = BootInstant::now();
    let mut refusals = Refusals(vec![None; servers.clients.len()]);
    let identity = RequestIdentity::new(Arc::clone(&request.key), Owner::unique());
    let trying = try_until_acquired(servers, request, &identity, &mut refusals);
    let outcome = match request.options.wait_limit().filter(|_| request.waits) {
        Some(wait) => timeout(wait, trying).await.ok(),
        None => Some(trying.await),
    };
    let took = BootInstant::now().since(begun);
    let outcome = outcome.unwrap_or_else(|| {
        let last = refusals
            .prevent(servers.majority)
            .then(|| refusals.error(servers, 0));
        Err(Error::timeout(&request.key, took, last))
    });
    match outcome {
        Ok(held) => {
            let fence = held.fence;
            servers
                .reporter
                .report(&held.identity, EventKind::Acquired { fence, took });
            Ok(held)
        }
        Err(error) => {
            let kind = EventKind::AcquireFailed {
                error: error.clone(),
                took,
            };
            servers.reporter.report(&identity, kind);
            Err(error)
        }
    }
}

async fn try_until_acquired(
    servers: &Arc<Servers>,
    request: &Request,
    identity: &RequestIdentity,
    refusals: &mut Refusals,
) -> Result<Arc<Held>, Error> {
    let mut rejected = vec![false; servers.clients.len()];
    let mut backoff = Backoff::new();
    let mut identity = identity.clone();
    loop {
        let health = servers.health();
        if !health.has_majority() {
            refusals.note_down(&health);
            if !request.waits {
                return Err(refusals.error(servers, 0));
            }
            servers.until(|health| health.has_majority()).await;
            continue;
        }
        let Some(first) = health.first(|server| rejected[server]) else {
            return Err(refusals.error(servers, 0));
        };
        let outcome = Round::new(servers, request, &identity, first, refusals)
            .run()
            .await;
        match outcome {
            Ok(held) => return Ok(held),
            Err(Failure::Busy) => return Err(Error::Busy),
            // The next server is the first one.
            Err(Failure::FirstFailed { is_final }) => {
                rejected[first] |= is_final || !request.waits;
                if servers.health().is_up(first) && !rejected[first] {
                    sleep(backoff.pause(Duration::MAX)).await;
                }
            }
            // Maybe because its fences are ahead of what the others accept.
            Err(Failure::OthersRejected) => rejected[first] = true,
            Err(Failure::TooFew { agreed }) => return Err(refusals.error(servers, agreed)),
            Err(Failure::GaveUp) if !request.waits => return Err(refusals.error(servers, 0)),
            Err(Failure::GaveUp) => sleep(backoff.pause(Duration::MAX)).await,
        }
        // Cancellations of this round do not concern the next one.
        identity = RequestIdentity::new(Arc::clone(&request.key), Owner::unique());
    }
}

impl Refusals {
    /// Whether so many servers failed that there could be no majority, whether others hold the lock or not.
    fn prevent(&self, majority: Majority) -> bool {
        let failed = self
            .0
            .iter()
            .flatten()
            .filter(|error| !matches!(error, Error::Busy));
        majority.is_blocked_by(failed.count())
    }

    /// Servers that are known to be down are not asked.
    pub fn note_down(&mut self, health: &Health) {
        for (server, refusal) in self.0.iter_mut().enumerate() {
            if !health.is_up(server) {
                refusal.get_or_insert_with(Error::no_response);
            }
        }
    }

    fn error(&self, servers: &Servers, agreed: usize) -> Error {
        let failures = self.0.iter().zip(&servers.clients).filter_map(|(error, client)| {
            let server = client.address();
            let error = error.clone()?.at_server(server);
            Some(NodeFailure {
                server: server.to_string(),
                error,
            })
        });
        Error::NoQuorum(NoQuorum {
            needed: servers.majority.needed(),
            agreed,
            failures: failures.collect(),
        })
    }
}
