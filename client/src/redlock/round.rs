//! The same request to several servers at once, until the outcome is certain.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;

use super::quorum::{Decision, Quorum, Tally, Vote};
use crate::connect::Address;
use crate::error::{Error, LostReason, NoQuorum, NodeFailure};

/// The requests that are pending, and the replies so far. Dropped, the pending requests are cancelled.
pub(super) struct Round<T, F> {
    quorum: Quorum,
    tally: Tally,
    agreed: Vec<T>,
    failures: Vec<NodeFailure>,
    pending: FuturesUnordered<F>,
}

impl<T, F> Round<T, F>
where
    F: Future<Output = Result<T, NodeFailure>>,
{
    /// Servers without a request count as failed.
    pub fn new(quorum: Quorum, requests: impl IntoIterator<Item = F>) -> Self {
        let pending: FuturesUnordered<F> = requests.into_iter().collect();
        let mut tally = Tally::new(quorum);
        for _ in pending.len()..quorum.nodes() {
            tally.count(Vote::Failed);
        }
        Self {
            quorum,
            tally,
            agreed: Vec::new(),
            failures: Vec::new(),
            pending,
        }
    }

    /// Waits until enough servers have replied. Never [`Decision::Open`].
    pub async fn decide(&mut self) -> Decision {
        let mut decision = self.tally.decision();
        while decision == Decision::Open {
            // The last reply decides at the latest.
            let Some(outcome) = self.pending.next().await else {
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

    /// The replies of the servers that agreed, and the requests that are still pending.
    pub fn into_agreed(self) -> (Vec<T>, FuturesUnordered<F>) {
        (self.agreed, self.pending)
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

/// Resolves when a majority has agreed; the other requests continue in the background.
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

/// The reply of one server, which has failed if it takes longer than `node_timeout`.
pub(super) async fn by_one<T>(
    node: Address,
    node_timeout: Duration,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, NodeFailure> {
    let outcome = timeout(node_timeout, request).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Error::no_response()));
    outcome.map_err(|error| NodeFailure {
        server: node.to_string(),
        error: error.at_server(&node),
    })
}

fn vote<T>(outcome: &Result<T, NodeFailure>) -> Vote {
    match outcome.as_ref().map_err(|failure| &failure.error) {
        Ok(_) => Vote::Yes,
        Err(Error::Busy) => Vote::Busy,
        // The grant arrived too late.
        Err(Error::Lost(LostReason::LeaseExpired)) => Vote::Failed,
        Err(error) if error.is_transient() => Vote::Failed,
        Err(_) => Vote::Rejected,
    }
}
