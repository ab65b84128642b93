//! The same request to several servers at once, until it is certain what comes of it.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;

use super::error::{NoQuorum, NodeFailure};
use super::quorum::{Decision, Quorum, Tally, Vote};
use crate::connect::Address;
use crate::error::Error;
use crate::error::LostReason;

/// What is under way, and what has come of it so far. Dropped, nobody waits for the rest any more.
pub(super) struct Round<T, F> {
    quorum: Quorum,
    tally: Tally,
    agreed: Vec<T>,
    failures: Vec<NodeFailure>,
    under_way: FuturesUnordered<F>,
}

impl<T, F> Round<T, F>
where
    F: Future<Output = Result<T, NodeFailure>>,
{
    /// Servers to which there is no request do not agree.
    pub fn new(quorum: Quorum, requests: impl IntoIterator<Item = F>) -> Self {
        let under_way: FuturesUnordered<F> = requests.into_iter().collect();
        let mut tally = Tally::new(quorum);
        for _ in under_way.len()..quorum.nodes() {
            tally.count(Vote::Failed);
        }
        Self {
            quorum,
            tally,
            agreed: Vec::new(),
            failures: Vec::new(),
            under_way,
        }
    }

    /// Waits until enough servers have answered. Never [`Decision::Open`].
    pub async fn decide(&mut self) -> Decision {
        let mut decision = self.tally.decision();
        while decision == Decision::Open {
            // The last answer at the latest decides.
            let Some(outcome) = self.under_way.next().await else {
                break;
            };
            decision = self.tally.count(vote(&outcome));
            match outcome {
                Ok(agreed) => self.agreed.push(agreed),
                Err(failure) => self.failures.push(failure),
            }
        }
        decision
    }

    /// What those answered that agreed, and what is still under way.
    pub fn into_agreed(self) -> (Vec<T>, FuturesUnordered<F>) {
        (self.agreed, self.under_way)
    }

    /// Why there is no majority.
    pub fn into_error(self) -> Error {
        Error::NoQuorum(NoQuorum {
            needed: self.quorum.needed(),
            agreed: self.agreed.len(),
            failures: self.failures,
        })
    }
}

/// Has a majority do something: done when it has, and the others go on in the background.
pub(super) async fn by_majority<F>(quorum: Quorum, requests: impl IntoIterator<Item = F>) -> Result<(), Error>
where
    F: Future<Output = Result<(), NodeFailure>> + Send + 'static,
{
    let mut round = Round::new(quorum, requests);
    if round.decide().await != Decision::Reached {
        return Err(round.into_error());
    }
    let (_, rest) = round.into_agreed();
    if !rest.is_empty() {
        tokio::spawn(rest.for_each(|_| std::future::ready(())));
    }
    Ok(())
}

/// The answer of one server, which is silent if it takes longer than `retry_timeout`.
pub(super) async fn by_one<T>(
    node: Address,
    patience: Duration,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, NodeFailure> {
    let outcome = timeout(patience, request).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Error::no_response()));
    outcome.map_err(|error| NodeFailure { node, error })
}

fn vote<T>(outcome: &Result<T, NodeFailure>) -> Vote {
    match outcome.as_ref().map_err(|failure| &failure.error) {
        Ok(_) => Vote::Yes,
        Err(Error::Busy) => Vote::Busy,
        // It was granted, but too late.
        Err(Error::Lost(LostReason::LeaseExpired)) => Vote::Failed,
        Err(error) if error.is_transient() => Vote::Failed,
        Err(_) => Vote::Hopeless,
    }
}
