//! Getting a lock: asked for over the shared connection, waited for over a connection of its own, and taken
//! back when nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::events::What;
use crate::guard::Guard;
use crate::hold::{Hold, Loss, Plan};
use crate::keeper::Held;
use crate::raw::Grant;
use crate::ticket::{Block, Limit, Ticket};
use crate::withdraw::{Sent, withdraw};

/// A server that answers that the time is up may take so much longer than the client's own clock.
const SERVER_GRACE: Duration = Duration::from_millis(3);

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub ticket: Ticket,
    pub limit: Limit,
    pub lease: Duration,
    pub renews: bool,
    pub max_hold: Option<Duration>,
}

/// One acquisition, from its first request on. Dropped before it is settled, it is taken back.
struct Attempt {
    client: Arc<Client>,
    wish: Wish,
    /// Where a request may still be, or where one was last sent without being answered.
    sent: Sent,
}

/// Asks once. Only a lost connection is a reason to ask again, with the same request id.
pub(crate) async fn try_acquire(client: &Arc<Client>, wish: Wish) -> Result<Guard, Error> {
    let begun = Moment::now();
    let mut attempt = Attempt::new(client, wish)?;
    let outcome = attempt.ask_until(begun + client.patience()).await;
    attempt.report(begun, &outcome);
    outcome
}

/// Asks, and waits in the server's queue for at most `wait`, without limit if it is `None`.
pub(crate) async fn acquire(
    client: &Arc<Client>,
    wish: Wish,
    wait: Option<Duration>,
) -> Result<Guard, Error> {
    let begun = Moment::now();
    let mut attempt = Attempt::new(client, wish)?;
    let mut last = None;
    let outcome = match wait {
        None => attempt.ask_and_wait(None, &mut last).await,
        Some(wait) => {
            let asking = attempt.ask_and_wait(Some(begun + wait), &mut last);
            match timeout(wait + SERVER_GRACE, asking).await {
                Ok(outcome) => outcome,
                // The server is silent: what it may know of the request is taken back.
                Err(_) => Err(Error::Timeout {
                    waited: wait,
                    last: None,
                }),
            }
        }
    };
    let outcome = outcome.map_err(|error| match error {
        Error::Timeout { waited, .. } => Error::Timeout {
            waited,
            last: last.map(Box::new),
        },
        error => error,
    });
    attempt.report(begun, &outcome);
    outcome
}

impl Attempt {
    fn new(client: &Arc<Client>, wish: Wish) -> Result<Self, Error> {
        // So that what is acquired can be looked after.
        client.keeper()?;
        Ok(Self {
            client: Arc::clone(client),
            wish,
            sent: Sent::Nowhere,
        })
    }

    async fn ask_until(&mut self, until: Moment) -> Result<Guard, Error> {
        let mut backoff = Backoff::new();
        loop {
            let error = match self.ask().await {
                Ok(answer) => return answer.ok_or(Error::Busy),
                Err(error) => error,
            };
            let now = Moment::now();
            if !error.is_ambiguous() || now >= until {
                return Err(error);
            }
            sleep(backoff.pause(until.since(now))).await;
        }
    }

    async fn ask_and_wait(
        &mut self,
        until: Option<Moment>,
        last: &mut Option<Error>,
    ) -> Result<Guard, Error> {
        let begun = Moment::now();
        let mut backoff = Backoff::new();
        let mut waits = false;
        loop {
            let answer = if waits {
                self.wait(until).await
            } else {
                self.ask().await
            };
            let error = match answer {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => None,
                Err(error @ Error::Quarantine(_)) => Some(error),
                Err(error) if error.is_transient() || matches!(error, Error::Lost(_)) => {
                    sleep(backoff.pause(Duration::MAX)).await;
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            // What waits is taken also while the server grants nothing.
            waits |= matches!(error, None | Some(Error::Quarantine(_)));
            *last = error;
            let now = Moment::now();
            if until.is_some_and(|until| now >= until) {
                return Err(Error::Timeout {
                    waited: now.since(begun),
                    last: None,
                });
            }
        }
    }

    /// Asks over the shared connection, without waiting.
    async fn ask(&mut self) -> Result<Option<Guard>, Error> {
        let command = self
            .wish
            .ticket
            .acquire(self.wish.lease, self.wish.limit, Block::No);
        let route = self.client.link().route().await?;
        self.sent = Sent::Over(route.clone());
        let sent_at = Moment::now();
        let answer = route.query(&command).await;
        self.settle(sent_at, answer)
    }

    /// Asks over a connection of its own, and waits there.
    async fn wait(&mut self, until: Option<Moment>) -> Result<Option<Guard>, Error> {
        let seat = self.client.room().seat(&self.wish.ticket.key).await?;
        let sent_at = Moment::now();
        let block = until.map_or(Block::Endless, |until| Block::AtMost(until.since(sent_at)));
        let command = self.wish.ticket.acquire(self.wish.lease, self.wish.limit, block);
        let answer = self.sent.insert(seat).query(&command).await;
        if let Some(seat) = self.sent.take_seat() {
            self.client.room().leave(seat, answer.as_ref().err());
        }
        self.settle(sent_at, answer.map_err(Error::from))
    }

    /// What an answer means.
    fn settle(
        &mut self,
        sent_at: Moment,
        answer: Result<Option<Grant>, Error>,
    ) -> Result<Option<Guard>, Error> {
        self.sent = match &answer {
            Err(error) if error.is_ambiguous() => Sent::Lost,
            _ => Sent::Nowhere,
        };
        let Some(grant) = answer? else {
            return Ok(None);
        };
        let Wish {
            lease,
            renews,
            max_hold,
            ..
        } = self.wish;
        let over_at = max_hold.map(|max_hold| Moment::now() + max_hold);
        let plan = Plan {
            lease,
            renews,
            over_at,
        };
        let hold = Hold::granted(plan, sent_at, grant.waited, grant.lease);
        let is_held = hold.is_held(Moment::now());
        let held = Held::new(self.wish.ticket.clone(), grant.fence, grant.holds, hold);
        let guard = Guard::new(Arc::clone(&self.client), held);
        if is_held {
            return Ok(Some(guard));
        }
        // It came too late. Dropped, it is released; a further request is another acquisition.
        self.wish.ticket = self.wish.ticket.again();
        Err(Error::Lost(Loss::LeaseEnded))
    }

    fn report(&self, begun: Moment, outcome: &Result<Guard, Error>) {
        let took = Moment::now().since(begun);
        let what = match outcome {
            Ok(guard) => What::Acquired {
                fence: guard.fence(),
                took,
            },
            Err(error) => What::NotAcquired { error, took },
        };
        self.client.report(&self.wish.ticket, what);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        if matches!(sent, Sent::Nowhere) {
            return;
        }
        if let Ok(keeper) = self.client.keeper() {
            let ticket = self.wish.ticket.clone();
            keeper.hand_over(withdraw(Arc::clone(&self.client), ticket, self.wish.lease, sent));
        }
    }
}
