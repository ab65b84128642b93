//! Acquiring a lock: first by a request on the shared connection, then by a blocked request on a connection of its
//! own. An acquisition that is dropped is cancelled.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cancel::{Outstanding, cancel};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::command::Grant;
use crate::connect::{Permit, PooledConnection, Turn};
use crate::error::{Error, LostReason};
use crate::events::EventKind;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::identity::{Block, RequestIdentity};
use crate::options::Options;
use crate::renewal::SharedHold;
use crate::replicas::Replicas;

/// How much later than the client's own clock the server may report a timeout: a 20th of the wait, within limits.
const MIN_SERVER_DELAY: Duration = Duration::from_millis(3);
const MAX_SERVER_DELAY: Duration = Duration::from_millis(50);

/// A lock to acquire, and how.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub identity: RequestIdentity,
    pub options: Options,
    pub replicas: Option<Replicas>,
    /// The smallest fence of a new grant.
    pub min_fence: Option<u64>,
}

/// One acquisition, from its first request on. Dropped before it is settled, it is cancelled.
pub(crate) struct Attempt {
    pub client: Arc<Client>,
    pub request: AcquireRequest,
    /// Where a request may still be in progress, or where one was last sent without a reply.
    pub sent: Outstanding,
    /// Whether the request was sent more than once, so that a late duplicate may arrive after its reply.
    pub is_repeated: bool,
    /// Kept until the acquisition is settled, so that a lost connection does not cost the turn.
    place: Option<(Turn, Permit)>,
}

/// What became of one request, and when.
pub(crate) struct Response {
    pub at: BootInstant,
    pub outcome: Result<Option<Guard>, Error>,
}

/// Sends one request. It is retried, with the same request id, only after a lost connection or a redirection.
pub(crate) async fn try_acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let begun = BootInstant::now();
    let mut attempt = Attempt::new(client, request);
    let limit = client.retry_timeout().max(attempt.longest_request());
    let trying = attempt.try_until(begun, begun + client.retry_timeout());
    // What the server may know of the request is cancelled.
    let (at, outcome) = timeout(limit, trying)
        .await
        .unwrap_or_else(|_| (BootInstant::now(), Err(Error::no_response())));
    attempt.finish(at.since(begun), outcome)
}

/// Acquires the lock, and waits in the server's queue for at most the requested time.
pub(crate) async fn acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let begun = BootInstant::now();
    let wait = request.options.wait_limit();
    let mut attempt = Attempt::new(client, request);
    // Without a timer of its own where the timeouts of the connection are much shorter.
    let first = match wait {
        Some(wait) if wait < attempt.longest_request() => None,
        // A refusal is likely, and it must not overtake those that wait in this process.
        _ if client.pool().is_contended(&attempt.request.identity.key) => None,
        _ => Some(attempt.try_once(begun).await),
    };
    let (at, outcome) = match first {
        Some(Response {
            at,
            outcome: Ok(Some(guard)),
        }) => (at, Ok(guard)),
        // Boxed, to keep the future for a free lock small.
        first => Box::pin(attempt.wait_until(begun, wait, first)).await,
    };
    attempt.finish(at.since(begun), outcome)
}

impl Attempt {
    pub fn new(client: &Arc<Client>, request: AcquireRequest) -> Self {
        client.warm_up();
        Self {
            client: Arc::clone(client),
            request,
            sent: Outstanding::default(),
            is_repeated: false,
            place: None,
        }
    }

    /// How long a request that is not blocked may take.
    fn longest_request(&self) -> Duration {
        let replicas = self
            .request
            .replicas
            .map_or(Duration::ZERO, |replicas| replicas.timeout);
        self.client.longest_request().saturating_add(replicas)
    }

    async fn try_until(
        &mut self,
        begun: BootInstant,
        until: BootInstant,
    ) -> (BootInstant, Result<Guard, Error>) {
        let mut backoff = Backoff::new();
        let mut now = begun;
        loop {
            let Response { at, outcome } = self.try_once(now).await;
            let error = match outcome {
                Ok(guard) => return (at, guard.ok_or(Error::Busy)),
                Err(error) => error,
            };
            if !(error.is_ambiguous() || is_redirect(&error)) || at >= until {
                return (at, Err(error));
            }
            sleep(backoff.pause(until.since(at))).await;
            now = BootInstant::now();
        }
    }

    /// Continues after the first response, if there was one.
    async fn wait_until(
        &mut self,
        begun: BootInstant,
        wait: Option<Duration>,
        first: Option<Response>,
    ) -> (BootInstant, Result<Guard, Error>) {
        // Until there is a response.
        let mut last = Some(Error::no_response());
        let outcome = match wait {
            None => self.wait_in_queue(first, None, &mut last).await,
            Some(wait) => {
                let delay = (wait / 20).clamp(MIN_SERVER_DELAY, MAX_SERVER_DELAY);
                let left = wait.saturating_sub(BootInstant::now().since(begun)) + delay;
                let waiting = self.wait_in_queue(first, Some(begun + wait), &mut last);
                match timeout(left, waiting).await {
                    Ok(outcome) => outcome,
                    // The server did not report the timeout. What it may know of the request is cancelled.
                    Err(_) => {
                        if delay == MAX_SERVER_DELAY && self.sent.is_blocked() {
                            last = Some(Error::no_response());
                        }
                        Ok(None)
                    }
                }
            }
        };
        let now = BootInstant::now();
        let timed_out = || Error::timeout(&self.request.identity.key, now.since(begun), last);
        let outcome = outcome.and_then(|guard| guard.ok_or_else(timed_out));
        (now, outcome)
    }

    /// `None`: timed out.
    async fn wait_in_queue(
        &mut self,
        mut first: Option<Response>,
        until: Option<BootInstant>,
        last: &mut Option<Error>,
    ) -> Result<Option<Guard>, Error> {
        let mut backoff = Backoff::new();
        let mut blocks = self.client.pool().is_contended(&self.request.identity.key);
        loop {
            let response = match first.take() {
                Some(first) => first,
                None if blocks => self.block(until).await,
                None => self.try_once(BootInstant::now()).await,
            };
            let error = match response.outcome {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) => None,
                Err(error @ Error::Grace(_)) => Some(error),
                Err(error @ Error::Unreplicated { .. }) => return Err(error),
                Err(error) if error.is_transient() || matches!(error, Error::Lost(_)) => {
                    *last = Some(error.clone());
                    sleep(backoff.pause(Duration::MAX)).await;
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            if error.is_none() {
                self.client.pool().on_busy(&self.request.identity.key);
            }
            // The server queues requests during a grace period, too. After another error the lock may be free.
            blocks = matches!(error, None | Some(Error::Grace(_)));
            *last = error;
            if until.is_some_and(|until| BootInstant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Sends a request that does not block, on the shared connection unless replicas must acknowledge the grant.
    pub async fn try_once(&mut self, now: BootInstant) -> Response {
        if self.request.replicas.is_some() {
            let response = timeout(self.longest_request(), self.send_alone(Block::No)).await;
            return response.unwrap_or_else(|_| self.settle(now, Err(Error::no_response())));
        }
        let command = self.command(Block::No);
        let route = match self.client.link().route().await {
            Ok(route) => route,
            Err(error) => return Response::unsent(error),
        };
        // A connection to a cluster resends requests by itself.
        self.is_repeated |= self.sent.is_lost || route.may_redirect();
        let reply = self.sent.route.insert(route).query(&command).await;
        self.settle(now, reply)
    }

    /// Sends a blocking request, on a connection of its own.
    async fn block(&mut self, until: Option<BootInstant>) -> Response {
        match self.wait_for_place().await {
            Some(response) => response,
            None => self.send_alone(Block::Until(until)).await,
        }
    }

    /// Waits until there may be another connection for a waiting request. The lock may be free before that: `Some`, if
    /// it was granted, or the request cannot be served.
    pub async fn wait_for_place(&mut self) -> Option<Response> {
        if self.place.is_some() {
            return None;
        }
        let client = Arc::clone(&self.client);
        let turn = client.pool().turn(&self.request.identity.key).await;
        let mut permit = pin!(client.pool().permit());
        let mut backoff = Backoff::new();
        loop {
            match timeout(backoff.pause(Duration::MAX), &mut permit).await {
                Ok(permit) => {
                    self.place = Some((turn, permit));
                    return None;
                }
                // The holders of other locks may wait for this task: it must not depend on them alone.
                Err(_) => {
                    let response = self.try_once(BootInstant::now()).await;
                    if !matches!(response.outcome, Ok(None)) {
                        return Some(response);
                    }
                }
            }
        }
    }

    /// Sends a request on a connection that no other request shares.
    async fn send_alone(&mut self, block: Block) -> Response {
        let connection = match self.client.pool().checkout(&self.request.identity.key).await {
            Ok(connection) => connection,
            Err(error) => return Response::unsent(error),
        };
        let sent_at = BootInstant::now();
        let command = self.command(block);
        let is_retry = self.sent.is_lost;
        self.is_repeated |= is_retry;
        let connection = self.sent.connection.insert(connection);
        let mut reply = match block {
            Block::No => connection.query(&command).await,
            Block::Until(_) => self.client.pool().query_blocking(connection, &command).await,
        };
        let mut refusal = None;
        if let Ok(Some(grant)) = &reply {
            match confirm(&self.request, grant, is_retry, connection).await {
                Ok(()) => {}
                // As if the grant itself had been lost: the request is sent again, or cancelled.
                Err(error) if error.is_ambiguous() => reply = Err(error),
                Err(error) => refusal = Some(error),
            }
        }
        let error = reply.as_ref().err().or(refusal.as_ref());
        if let Some(connection) = self.sent.connection.take() {
            self.client.pool().checkin(connection, error);
        }
        let mut response = self.settle(sent_at, reply);
        if let (Ok(_), Some(error)) = (&response.outcome, refusal) {
            // The guard is dropped, which releases the lock.
            self.begin_another();
            response.outcome = Err(error);
        }
        response
    }

    pub fn command(&self, block: Block) -> redis::Cmd {
        let AcquireRequest {
            identity,
            options,
            min_fence,
            ..
        } = &self.request;
        identity.acquire(options.lease, options.limit, block, *min_fence)
    }

    /// Interprets a reply.
    pub fn settle(&mut self, sent_at: BootInstant, reply: Result<Option<Grant>, Error>) -> Response {
        let at = BootInstant::now();
        // An earlier request may still be in progress when a later one is rejected. A grant settles both.
        let is_granted = matches!(reply, Ok(Some(_)));
        let is_lost = self.sent.is_lost || reply.as_ref().is_err_and(Error::is_ambiguous);
        self.sent = Outstanding {
            is_lost: is_lost && !is_granted,
            ..Outstanding::default()
        };
        let outcome = match reply {
            Ok(Some(grant)) => self.guard(grant, sent_at, at).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        Response { at, outcome }
    }

    fn guard(&mut self, grant: Grant, sent_at: BootInstant, now: BootInstant) -> Result<Guard, Error> {
        let plan = self.request.options.plan(now);
        let context = self.client.renewal_context();
        let certain = |time| context.certain(time);
        let hold = Hold::granted(plan, sent_at, certain(grant.waited), certain(grant.lease));
        let is_held = hold.is_held(now);
        let identity = self.request.identity.clone();
        let held = SharedHold::new(context, identity, grant, self.is_repeated, hold);
        let guard = Guard::new(Arc::clone(&self.client), held);
        if is_held {
            return Ok(guard);
        }
        // The grant arrived too late. The guard releases it.
        self.begin_another();
        Err(Error::Lost(LostReason::LeaseExpired))
    }

    /// Further requests are another acquisition.
    fn begin_another(&mut self) {
        self.request.identity = self.request.identity.with_new_id();
        self.is_repeated = false;
    }

    /// Reports the outcome.
    fn finish(&self, took: Duration, outcome: Result<Guard, Error>) -> Result<Guard, Error> {
        let outcome = outcome.map_err(|error| error.at_server(self.client.address()));
        let kind = match &outcome {
            Ok(guard) => EventKind::Acquired {
                fence: guard.fence(),
                took,
            },
            Err(error) => EventKind::AcquireFailed {
                error: error.clone(),
                took,
            },
        };
        self.client.report(&self.request.identity, kind);
        outcome
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        if !sent.is_nowhere() {
            let (client, identity) = (Arc::clone(&self.client), self.request.identity.clone());
            let cancelling = cancel(client, identity, self.request.options.lease, sent);
            let place = self.place.take();
            self.client.renewal_thread().spawn(async move {
                cancelling.await;
                drop(place);
            });
        }
    }
}

impl Response {
    /// There was no connection to send the request on.
    pub fn unsent(error: Error) -> Self {
        Self {
            at: BootInstant::now(),
            outcome: Err(error),
        }
    }
}

/// Whether a node redirects to the node that serves the key.
fn is_redirect(error: &Error) -> bool {
    error
        .as_redis()
        .is_some_and(|error| error.redirect_node().is_some())
}

/// Waits until a grant has reached the replicas that the request asks for.
async fn confirm(
    request: &AcquireRequest,
    grant: &Grant,
    is_retry: bool,
    connection: &PooledConnection,
) -> Result<(), Error> {
    let Some(replicas) = request.replicas else {
        return Ok(());
    };
    if is_retry {
        // It may have been granted, and written, on another connection.
        force_write(request, grant, connection).await?;
    }
    replicas.acknowledge(connection).await
}

/// Has the server replicate the holder again, after this connection's last write.
///
/// WAIT and WAITAOF cover what was written on their own connection. A repeated request writes nothing where the
/// first one was granted, so WAIT would return at once. An EXTEND writes the holder if it makes the lease longer.
async fn force_write(
    request: &AcquireRequest,
    grant: &Grant,
    connection: &PooledConnection,
) -> Result<(), Error> {
    // The reply rounds the remaining lease down.
    const ROUNDING: Duration = Duration::from_millis(1);
    let mut lease = request.options.lease.max(grant.lease + ROUNDING);
    loop {
        let command = request.identity.extend(lease, grant.fence);
        let remaining = connection.query(&command).await.map(Duration::from_millis);
        match remaining {
            Ok(remaining) if remaining <= lease => return Ok(()),
            // Another hold of this owner was extended meanwhile, to a longer lease.
            Ok(remaining) => lease = remaining + ROUNDING,
            Err(error) => return Err(LostReason::reported_by(&error).map_or(error, Error::Lost)),
        }
    }
}
