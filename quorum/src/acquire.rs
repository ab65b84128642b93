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
use crate::connect::Permit;
use crate::error::Error;
use crate::events::EventKind;
use crate::guard::Guard;
use crate::identity::{Block, RequestIdentity};
use crate::options::Options;
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

/// What became of one request. `None`: it was not granted.
pub(crate) type Outcome = Result<Option<Guard>, Error>;

/// One acquisition, from its first request on. Dropped before it is settled, it is cancelled.
pub(crate) struct Attempt {
    pub client: Arc<Client>,
    pub request: AcquireRequest,
    begun: BootInstant,
    /// Where a request may still be in progress, or where one was last sent without a reply.
    pub sent: Outstanding,
    /// Whether the request was sent more than once, so that a late duplicate may arrive after its reply.
    pub is_repeated: bool,
    /// The turn among the requests for this key, and a place among all that wait. Kept until the acquisition is settled,
    /// so that a lost connection does not cost the turn.
    place: Option<(Permit, Permit)>,
}

/// Sends one request. It is retried, with the same request id, only after a lost connection or a redirection.
pub(crate) async fn try_acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let mut attempt = Attempt::new(client, request);
    let limit = client.retry_timeout.max(attempt.longest_request());
    // What the server may know of the request when the time is up is cancelled.
    let outcome = timeout(limit, attempt.try_for(client.retry_timeout)).await;
    attempt.finish(outcome.unwrap_or_else(|_| Err(Error::no_response())))
}

/// Acquires the lock, and waits in the server's queue for at most the requested time.
pub(crate) async fn acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let wait = request.options.wait_limit();
    let mut attempt = Attempt::new(client, request);
    // Without a timer of its own where the timeouts of the connection are much shorter. Where the lock is contended, a
    // refusal is likely, and the request must not overtake those that wait in this process.
    let first = if wait.is_none_or(|wait| wait >= attempt.longest_request()) && !attempt.is_contended() {
        Some(attempt.try_once(attempt.begun).await)
    } else {
        None
    };
    let outcome = match first {
        Some(Ok(Some(guard))) => Ok(guard),
        // Boxed, to keep the future for a free lock small.
        first => Box::pin(attempt.wait(wait, first)).await,
    };
    attempt.finish(outcome)
}

impl Attempt {
    pub fn new(client: &Arc<Client>, request: AcquireRequest) -> Self {
        client.warm_up();
        Self {
            client: Arc::clone(client),
            request,
            begun: BootInstant::now(),
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
        self.client.longest_request.saturating_add(replicas)
    }

    fn is_contended(&self) -> bool {
        self.client.pool.is_contended(&self.request.identity.key)
    }

    async fn try_for(&mut self, retry_timeout: Duration) -> Result<Guard, Error> {
        let until = self.begun + retry_timeout;
        let mut backoff = Backoff::new();
        loop {
            let error = match self.try_once(BootInstant::now()).await {
                Ok(guard) => return guard.ok_or(Error::Busy),
                Err(error) => error,
            };
            let left = until.since(BootInstant::now());
            if left.is_zero() || !(error.is_ambiguous() || is_redirect(&error)) {
                return Err(error);
            }
            sleep(backoff.pause(left)).await;
        }
    }

    /// Continues after the first outcome, if there was one.
    async fn wait(&mut self, wait: Option<Duration>, first: Option<Outcome>) -> Result<Guard, Error> {
        // Until there is a response.
        let mut last = Some(Error::no_response());
        let outcome = match wait {
            None => self.wait_in_queue(first, None, &mut last).await,
            Some(wait) => {
                let until = self.begun + wait;
                let delay = (wait / 20).clamp(MIN_SERVER_DELAY, MAX_SERVER_DELAY);
                let left = until.since(BootInstant::now()) + delay;
                let waiting = self.wait_in_queue(first, Some(until), &mut last);
                timeout(left, waiting).await.unwrap_or_else(|_| {
                    // The server did not report the timeout. What it may know of the request is cancelled.
                    if delay == MAX_SERVER_DELAY && self.sent.is_blocked() {
                        last = Some(Error::no_response());
                    }
                    Ok(None)
                })
            }
        };
        let waited = || BootInstant::now().since(self.begun);
        outcome?.ok_or_else(|| Error::timeout(&self.request.identity.key, waited(), last))
    }

    /// `None`: timed out.
    async fn wait_in_queue(
        &mut self,
        mut first: Option<Outcome>,
        until: Option<BootInstant>,
        last: &mut Option<Error>,
    ) -> Outcome {
        let mut backoff = Backoff::new();
        let mut blocks = self.is_contended();
        loop {
            let outcome = match first.take() {
                Some(first) => first,
                None if blocks => self.block(until).await,
                None => self.try_once(BootInstant::now()).await,
            };
            // The server queues requests during a grace period, too. After another error the lock may be free.
            blocks = matches!(outcome, Ok(_) | Err(Error::Grace(_)));
            *last = match outcome {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) => {
                    self.client.pool.on_busy(&self.request.identity.key);
                    None
                }
                Err(error @ Error::Grace(_)) => Some(error),
                Err(error @ Error::Unreplicated { .. }) => return Err(error),
                Err(error) if error.is_transient() || matches!(error, Error::Lost(_)) => {
                    // Also if the time is up during the pause.
                    *last = Some(error.clone());
                    sleep(backoff.pause(Duration::MAX)).await;
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            if until.is_some_and(|until| BootInstant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Sends a request that does not block, on the shared connection unless replicas must acknowledge the grant.
    pub async fn try_once(&mut self, now: BootInstant) -> Outcome {
        if self.request.replicas.is_some() {
            let outcome = timeout(self.longest_request(), self.send_alone(Block::No)).await;
            return outcome.unwrap_or_else(|_| self.settle(now, Err(Error::no_response())));
        }
        let command = self.command(Block::No);
        let route = self.client.link.route().await?;
        // A connection to a cluster resends requests by itself.
        self.is_repeated |= self.sent.is_lost || route.may_redirect();
        let reply = self.sent.route.insert(route).query(&command).await;
        self.settle(now, reply)
    }

    /// Sends a blocking request, on a connection of its own.
    async fn block(&mut self, until: Option<BootInstant>) -> Outcome {
        match self.wait_for_place().await {
            Some(outcome) => outcome,
            None => self.send_alone(Block::Until(until)).await,
        }
    }

    /// Waits until there may be another connection for a waiting request. The lock may be free before that: `Some`, if
    /// it was granted, or the request cannot be served.
    async fn wait_for_place(&mut self) -> Option<Outcome> {
        if self.place.is_some() {
            return None;
        }
        let pool = Arc::clone(&self.client.pool);
        let turn = pool.turn(&self.request.identity.key).await;
        let mut permit = pin!(pool.permit());
        let mut backoff = Backoff::new();
        loop {
            if let Ok(permit) = timeout(backoff.pause(Duration::MAX), &mut permit).await {
                self.place = Some((turn, permit));
                return None;
            }
            // The holders of other locks may wait for this task: it must not depend on them alone.
            let outcome = self.try_once(BootInstant::now()).await;
            if !matches!(outcome, Ok(None)) {
                return Some(outcome);
            }
        }
    }

    /// Sends a request on a connection that no other request shares.
    async fn send_alone(&mut self, block: Block) -> Outcome {
        let pool = Arc::clone(&self.client.pool);
        let connection = pool.checkout(&self.request.identity.key).await?;
        let sent_at = BootInstant::now();
        let command = self.command(block);
        let is_retry = self.sent.is_lost;
        self.is_repeated |= is_retry;
        let connection = self.sent.connection.insert(connection);
        let mut reply = match block {
            Block::No => connection.query(&command).await,
            Block::Until(_) => pool.query_blocking(connection, &command).await,
        };
        let mut confirmed = Ok(());
        if let (Ok(Some(grant)), Some(replicas)) = (&reply, self.request.replicas) {
            // After a lost reply, it may have been granted, and written, on another connection.
            let rewrites = is_retry.then_some((&self.request.identity, self.request.options.lease));
            confirmed = replicas.confirm(connection, grant, rewrites).await;
        }
        if let Some(error) = confirmed.as_ref().err().filter(|error| error.is_ambiguous()) {
            // As if the grant itself had been lost: the request is sent again, or cancelled.
            reply = Err(error.clone());
        }
        let error = reply.as_ref().err().or(confirmed.as_ref().err());
        if let Some(connection) = self.sent.connection.take() {
            pool.checkin(connection, error);
        }
        let outcome = self.settle(sent_at, reply)?;
        // Without a confirmation the guard is dropped, which releases the lock.
        confirmed.inspect_err(|_| self.begin_another())?;
        Ok(outcome)
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
    pub fn settle(&mut self, sent_at: BootInstant, reply: Result<Option<Grant>, Error>) -> Outcome {
        // An earlier request may still be in progress when a later one is rejected. A grant settles both.
        let is_granted = matches!(reply, Ok(Some(_)));
        let is_lost = self.sent.is_lost || reply.as_ref().is_err_and(Error::is_ambiguous);
        self.sent = Outstanding {
            is_lost: is_lost && !is_granted,
            ..Outstanding::default()
        };
        reply.and_then(|grant| grant.map(|grant| self.guard(grant, sent_at)).transpose())
    }

    fn guard(&mut self, grant: Grant, sent_at: BootInstant) -> Result<Guard, Error> {
        let AcquireRequest {
            identity, options, ..
        } = &self.request;
        let (identity, is_repeated) = (identity.clone(), self.is_repeated);
        let guard = Guard::granted(&self.client, identity, grant, sent_at, options, is_repeated);
        guard.inspect_err(|_| self.begin_another())
    }

    /// Further requests are another acquisition.
    fn begin_another(&mut self) {
        self.request.identity = self.request.identity.with_new_id();
        self.is_repeated = false;
    }

    /// Reports the outcome.
    fn finish(&self, outcome: Result<Guard, Error>) -> Result<Guard, Error> {
        let took = BootInstant::now().since(self.begun);
        let outcome = outcome.map_err(|error| error.at_server(self.client.address()));
        let kind = EventKind::of_acquisition(outcome.as_ref().map(Guard::fence), took);
        self.client.report(&self.request.identity, kind);
        outcome
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        if !sent.is_nowhere() {
            let (client, identity) = (Arc::clone(&self.client), self.request.identity.clone());
            let (lease, place) = (self.request.options.lease, self.place.take());
            self.client.renewal_thread.spawn(async move {
                cancel(client, identity, lease, sent).await;
                drop(place);
            });
        }
    }
}

/// Whether a node redirects to the node that serves the key.
fn is_redirect(error: &Error) -> bool {
    error
        .as_redis()
        .is_some_and(|error| error.redirect_node().is_some())
}
