//! Acquiring a lock on a majority of servers: all are asked at once, with retries.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

use super::error::NodeFailure;
use super::guard::Guard;
use super::held::{Held, Node};
use super::hold::Hold;
use super::quorum::{Decision, Quorum};
use super::round::{Round, by_one};
use crate::acquire::{self, AcquireRequest as NodeRequest};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;

/// What is wanted of each server.
#[derive(Clone, Debug)]
pub(super) struct AcquireRequest {
    pub key: Arc<[u8]>,
    pub options: Options,
    /// A server that has not answered by then has failed.
    pub node_timeout: Duration,
}

/// Why there is no lock.
struct Refusal {
    error: Error,
    /// Whether it would be the same the next time.
    is_final: bool,
}

/// Asks all servers once.
pub(super) async fn try_acquire(nodes: &[Arc<Client>], request: &AcquireRequest) -> Result<Guard, Error> {
    let outcome = ask_all(nodes, request, &Owner::unique(), request.node_timeout).await;
    outcome.map_err(|refusal| refusal.error)
}

/// Asks all servers until a majority agrees or the wait is over.
pub(super) async fn acquire(nodes: &[Arc<Client>], request: &AcquireRequest) -> Result<Guard, Error> {
    let begun = BootInstant::now();
    let wait = request.options.wait_limit();
    let left = || {
        wait.map_or(Duration::MAX, |wait| {
            wait.saturating_sub(BootInstant::now().since(begun))
        })
    };
    // The same for all attempts: what one has left behind on a server is not in the way of the next.
    let owner = Owner::unique();
    let mut backoff = Backoff::new();
    loop {
        let patience = request.node_timeout.min(left());
        let refusal = match ask_all(nodes, request, &owner, patience).await {
            Ok(guard) => return Ok(guard),
            Err(refusal) if refusal.is_final => return Err(refusal.error),
            Err(refusal) => refusal,
        };
        sleep(backoff.pause(left())).await;
        if left().is_zero() {
            let failure = Some(refusal.error).filter(|error| !matches!(error, Error::Busy));
            return Err(Error::timeout(
                &request.key,
                BootInstant::now().since(begun),
                failure,
            ));
        }
    }
}

/// Asks all servers at once. One that has not answered within `retry_timeout` has failed: that may be less than the
/// holder has for them later.
///
/// What was granted in vain is released when its guard is dropped, and what is still under way is taken back
/// when its future is; also when this future itself is dropped.
async fn ask_all(
    nodes: &[Arc<Client>],
    request: &AcquireRequest,
    owner: &Owner,
    patience: Duration,
) -> Result<Guard, Refusal> {
    let quorum = Quorum::of(nodes.len());
    let over_at = request
        .options
        .max_hold
        .map(|max_hold| BootInstant::now() + max_hold);
    let ask = |node| ask(Arc::clone(node), request.for_node(owner), patience);
    let requests = nodes.iter().map(ask);
    let mut round = Round::new(quorum, requests);
    match round.decide().await {
        Decision::Reached => {}
        Decision::Busy => return Err(Refusal::for_now(Error::Busy)),
        Decision::Hopeless => return Err(Refusal::for_good(round.into_error())),
        Decision::Failed | Decision::Open => return Err(Refusal::for_now(round.into_error())),
    }
    let (granted, late) = round.into_agreed();
    let held = Held::new(&request.key, owner, Hold::new(quorum, over_at), granted);
    let guard = Guard::new(nodes[0].renewal_thread(), quorum, held, request.node_timeout);
    if let Some(reason) = guard.lost_reason() {
        // It took longer than the lease.
        return Err(Refusal::for_now(Error::Lost(reason)));
    }
    if !late.is_empty() {
        tokio::spawn(join(Arc::clone(guard.held()), late));
    }
    Ok(guard)
}

/// Asks one server.
async fn ask(client: Arc<Client>, request: NodeRequest, patience: Duration) -> Result<Node, NodeFailure> {
    let (address, lease) = (client.address().clone(), request.options.lease);
    let guard = by_one(address.clone(), patience, acquire::try_acquire(&client, request)).await?;
    Ok(Node::new(guard, address, lease))
}

/// The servers that grant late join the lock. When they are too late, that is given back: here, for the thread in
/// the background would have to be woken for it.
async fn join<F>(held: Arc<Held>, late: FuturesUnordered<F>)
where
    F: Future<Output = Result<Node, NodeFailure>>,
{
    late.for_each_concurrent(None, async |outcome| {
        let too_late = outcome.ok().and_then(|node| held.join(node));
        if let Some(guard) = too_late.and_then(Node::into_guard) {
            // Its own events tell the outcome.
            drop(guard.release().await);
        }
    })
    .await;
}

impl AcquireRequest {
    fn for_node(&self, owner: &Owner) -> NodeRequest {
        NodeRequest {
            identity: RequestIdentity::new(Arc::clone(&self.key), owner.clone()),
            options: Options {
                // The guard on the majority sees to that. What the drift of clocks takes off counts for leases only.
                max_hold: None,
                ..self.options
            },
            replicas: None,
        }
    }
}

impl Refusal {
    fn for_now(error: Error) -> Self {
        Self {
            error,
            is_final: false,
        }
    }

    fn for_good(error: Error) -> Self {
        Self {
            error,
            is_final: true,
        }
    }
}
