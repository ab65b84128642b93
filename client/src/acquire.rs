//! Getting a lock: asked for over the shared connection, waited for over a connection of its own, and taken
//! back when nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cancel::{Outstanding, cancel};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::command::Grant;
use crate::connect::PooledConnection;
use crate::error::Error;
use crate::events::EventKind;
use crate::guard::Guard;
use crate::hold::{Hold, LostReason, Plan};
use crate::identity::{Block, RequestIdentity};
use crate::options::Options;
use crate::renewal::SharedHold;
use crate::replicas::Replicas;
use crate::touch::{Passing, touch};

/// A server that answers that the time is up may take so much longer than the client's own clock.
const SERVER_GRACE: Duration = Duration::from_millis(3);

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub identity: RequestIdentity,
    pub options: Options,
    pub replicas: Option<Replicas>,
}

/// One acquisition, from its first request on. Dropped before it is settled, it is taken back.
struct Attempt {
    client: Arc<Client>,
    request: AcquireRequest,
    /// Where a request may still be, or where one was last sent without being answered.
    sent: Outstanding,
    passing: Passing,
}

/// What came of a request, and when.
struct Response {
    at: BootInstant,
    outcome: Result<Option<Guard>, Error>,
}

/// Asks once. Only a lost connection, or a key that is elsewhere in the cluster, is a reason to ask again, with the
/// same request id.
pub(crate) async fn try_acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let begun = BootInstant::now();
    let mut attempt = Attempt::new(client, request);
    let (at, outcome) = attempt.ask_until(begun, begun + client.retry_timeout()).await;
    attempt.report(at.since(begun), &outcome);
    outcome
}

/// Asks, and waits in the server's queue for at most as long as is wished.
pub(crate) async fn acquire(client: &Arc<Client>, request: AcquireRequest) -> Result<Guard, Error> {
    let begun = BootInstant::now();
    let wait = request.options.wait_limit();
    let mut attempt = Attempt::new(client, request);
    // The timeout of a connection is not exact, but saves a timer where it is the shorter one by far.
    let first = match wait {
        Some(wait) if wait < attempt.longest_request() => None,
        _ => Some(attempt.ask(begun).await),
    };
    let (at, outcome) = match first {
        Some(Response {
            at,
            outcome: Ok(Some(guard)),
        }) => (at, Ok(guard)),
        // Apart, so that the future of a lock that is free stays small.
        first => Box::pin(attempt.wait_until(begun, wait, first)).await,
    };
    attempt.report(at.since(begun), &outcome);
    outcome
}

impl Attempt {
    fn new(client: &Arc<Client>, request: AcquireRequest) -> Self {
        client.warm_up();
        Self {
            client: Arc::clone(client),
            request,
            sent: Outstanding::default(),
            passing: Passing::new(),
        }
    }

    /// For how long a request that does not wait for the lock may be under way.
    fn longest_request(&self) -> Duration {
        let replicas = self
            .request
            .replicas
            .map_or(Duration::ZERO, |replicas| replicas.timeout);
        self.client.longest_request().saturating_add(replicas)
    }

    async fn ask_until(
        &mut self,
        begun: BootInstant,
        until: BootInstant,
    ) -> (BootInstant, Result<Guard, Error>) {
        let mut backoff = Backoff::new();
        let mut now = begun;
        loop {
            let Response { at, outcome } = self.ask(now).await;
            let error = match outcome {
                Ok(answer) => return (at, answer.ok_or(Error::Busy)),
                Err(error) => error,
            };
            if !(error.is_ambiguous() || is_elsewhere(&error)) || at >= until {
                return (at, Err(error));
            }
            sleep(backoff.pause(until.since(at))).await;
            now = BootInstant::now();
        }
    }

    /// Goes on after a first answer, if there has been one.
    async fn wait_until(
        &mut self,
        begun: BootInstant,
        wait: Option<Duration>,
        first: Option<Response>,
    ) -> (BootInstant, Result<Guard, Error>) {
        // As long as no answer has come.
        let mut last = Some(Error::no_response());
        let outcome = match wait {
            None => self.ask_and_wait(first, None, &mut last).await,
            Some(wait) => {
                let left = wait.saturating_sub(BootInstant::now().since(begun)) + SERVER_GRACE;
                let asking = self.ask_and_wait(first, Some(begun + wait), &mut last);
                // When the server is silent, what it may know of the request is taken back.
                timeout(left, asking).await.unwrap_or(Ok(None))
            }
        };
        let now = BootInstant::now();
        let too_late = || Error::timeout(&self.request.identity.key, now.since(begun), last);
        let outcome = outcome.and_then(|guard| guard.ok_or_else(too_late));
        (now, outcome)
    }

    /// `None`: the time is over.
    async fn ask_and_wait(
        &mut self,
        mut first: Option<Response>,
        until: Option<BootInstant>,
        last: &mut Option<Error>,
    ) -> Result<Option<Guard>, Error> {
        let mut backoff = Backoff::new();
        let mut waits = false;
        loop {
            let answered = match first.take() {
                Some(first) => first,
                None if waits => self.wait(until).await,
                None => self.ask(BootInstant::now()).await,
            };
            let error = match answered.outcome {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) => None,
                Err(error @ Error::Grace(_)) => Some(error),
                Err(error) if error.is_transient() || matches!(error, Error::Lost(_)) => {
                    *last = Some(error.clone());
                    sleep(backoff.pause(Duration::MAX)).await;
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            // What waits is taken also while the server grants nothing. Where waiting fails, the lock may be free.
            waits = matches!(error, None | Some(Error::Grace(_)));
            *last = error;
            if until.is_some_and(|until| BootInstant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Asks without waiting, over the shared connection unless the replicas are to be asked too.
    async fn ask(&mut self, now: BootInstant) -> Response {
        if self.request.replicas.is_some() {
            return match timeout(self.longest_request(), self.ask_alone(Block::No)).await {
                Ok(answered) => answered,
                Err(_) => self.settle(now, Err(Error::no_response())),
            };
        }
        let command =
            self.request
                .identity
                .acquire(self.request.options.lease, self.request.options.limit, Block::No);
        let route = match self.client.link().route().await {
            Ok(route) => route,
            Err(error) => {
                return Response {
                    at: BootInstant::now(),
                    outcome: Err(error),
                };
            }
        };
        let answer = self.sent.route.insert(route).query(&command).await;
        self.settle(now, answer)
    }

    /// Asks over a connection of its own, and waits there.
    async fn wait(&mut self, until: Option<BootInstant>) -> Response {
        let now = BootInstant::now();
        let block = until.map_or(Block::Endless, |until| Block::AtMost(until.since(now)));
        self.ask_alone(block).await
    }

    /// Asks over a connection that nobody else has.
    async fn ask_alone(&mut self, block: Block) -> Response {
        let seat = match self.client.pool().checkout(&self.request.identity.key).await {
            Ok(seat) => seat,
            Err(error) => {
                return Response {
                    at: BootInstant::now(),
                    outcome: Err(error),
                };
            }
        };
        let sent_at = BootInstant::now();
        let command =
            self.request
                .identity
                .acquire(self.request.options.lease, self.request.options.limit, block);
        let is_repeated = self.sent.is_lost;
        let seat = self.sent.seat.insert(seat);
        let mut answer = seat.query(&command).await;
        let mut refusal = None;
        if let Ok(Some(grant)) = &mut answer {
            match confirm(&self.request, &mut self.passing, grant, is_repeated, seat).await {
                Ok(()) => {}
                // As if the grant itself had been lost: the same request is sent again, or taken back.
                Err(error) if error.is_ambiguous() => answer = Err(error),
                Err(error) => refusal = Some(error),
            }
        }
        let failure = answer.as_ref().err().or(refusal.as_ref());
        if let Some(seat) = self.sent.seat.take() {
            self.client.pool().checkin(seat, failure);
        }
        let mut answered = self.settle(sent_at, answer);
        if let (Ok(_), Some(error)) = (&answered.outcome, refusal) {
            // The guard goes, and the lock is given back with it.
            self.request.identity = self.request.identity.with_new_id();
            answered.outcome = Err(error);
        }
        answered
    }

    /// What an answer means.
    fn settle(&mut self, sent_at: BootInstant, answer: Result<Option<Grant>, Error>) -> Response {
        let at = BootInstant::now();
        // Of several requests one may still be on its way when a later one is refused. A grant has both.
        let is_granted = matches!(answer, Ok(Some(_)));
        let is_lost = self.sent.is_lost || answer.as_ref().is_err_and(Error::is_ambiguous);
        self.sent = Outstanding {
            is_lost: is_lost && !is_granted,
            ..Outstanding::default()
        };
        let outcome = match answer {
            Ok(Some(grant)) => self.take(grant, sent_at, at).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        Response { at, outcome }
    }

    /// Puts a guard before what was granted.
    fn take(&mut self, grant: Grant, sent_at: BootInstant, now: BootInstant) -> Result<Guard, Error> {
        let Options {
            lease,
            renews,
            max_hold,
            ..
        } = self.request.options;
        let plan = Plan {
            lease,
            renews,
            over_at: max_hold.map(|max_hold| now + max_hold),
        };
        let hold = Hold::granted(plan, sent_at, grant.waited, grant.lease);
        let is_held = hold.is_held(now);
        let renewal = self.client.renewal_context();
        let held = SharedHold::new(
            renewal,
            self.request.identity.clone(),
            grant.fence,
            grant.holds,
            hold,
        );
        let guard = Guard::new(Arc::clone(&self.client), held);
        if is_held {
            return Ok(guard);
        }
        // It came too late. Dropped, it is released; a further request is another acquisition.
        self.request.identity = self.request.identity.with_new_id();
        Err(Error::Lost(LostReason::LeaseExpired))
    }

    /// Has a request withdrawn in the background.
    fn take_back(&self, identity: RequestIdentity, sent: Outstanding) {
        let errand = cancel(
            Arc::clone(&self.client),
            identity,
            self.request.options.lease,
            sent,
        );
        self.client.renewal_thread().spawn(errand);
    }

    fn report(&self, took: Duration, outcome: &Result<Guard, Error>) {
        let what = match outcome {
            Ok(guard) => EventKind::Acquired {
                fence: guard.fence(),
                took,
            },
            Err(error) => EventKind::AcquireFailed { error, took },
        };
        self.client.report(&self.request.identity, what);
    }
}

/// Whether a node says that another one serves the key.
fn is_elsewhere(error: &Error) -> bool {
    error
        .as_redis()
        .is_some_and(|error| error.redirect_node().is_some())
}

/// Waits until what was granted over this connection is where it is wished to be.
async fn confirm(
    request: &AcquireRequest,
    passing: &mut Passing,
    grant: &mut Grant,
    is_repeated: bool,
    seat: &PooledConnection,
) -> Result<(), Error> {
    let Some(replicas) = request.replicas else {
        return Ok(());
    };
    if is_repeated {
        // It may have been granted, and written, over another connection.
        *grant = touch(request, passing, *grant, seat).await?;
    }
    replicas.acknowledge(seat).await
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        if !sent.is_nowhere() {
            self.take_back(self.request.identity.clone(), sent);
        }
        for identity in std::mem::take(&mut self.passing) {
            self.take_back(identity, Outstanding::lost());
        }
    }
}
