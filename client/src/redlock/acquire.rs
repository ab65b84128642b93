//! Acquiring a lock on a majority of servers: all are asked at once, with retries.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

use super::guard::Guard;
use super::held::{Held, Node};
use super::hold::Hold;
use super::quorum::{Decision, Quorum};
use super::round::{Round, by_one};
use crate::acquire::{self, AcquireRequest as NodeRequest};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::{Error, NodeFailure};
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::owner::Owner;

/// A lock to acquire, and how.
#[derive(Clone, Debug)]
pub(super) struct AcquireRequest {
    pub key: Arc<[u8]>,
    pub options: Options,
    /// A server that has not replied by then has failed.
    pub node_timeout: Duration,
}

/// Why an attempt failed.
struct Refusal {
    error: Error,
    /// Whether a retry would not help.
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
    // The same for all attempts: a grant that one of them left on a server does not block the next.
    let owner = Owner::unique();
    let mut backoff = Backoff::new();
    loop {
        let node_timeout = request.node_timeout.min(left());
        let refusal = match ask_all(nodes, request, &owner, node_timeout).await {
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

/// Asks all servers at once. One that has not replied within `node_timeout` has failed; near the end of the wait, that is
/// shorter than the timeout for later requests.
///
/// If there is no majority, or this future is dropped, the guards are dropped, which releases the grants, and so are the
/// pending requests, which cancels them.
async fn ask_all(
    nodes: &[Arc<Client>],
    request: &AcquireRequest,
    owner: &Owner,
    node_timeout: Duration,
) -> Result<Guard, Refusal> {
    let quorum = Quorum::of(nodes.len());
    let over_at = request
        .options
        .max_hold
        .map(|max_hold| BootInstant::now() + max_hold);
    let ask = |node| ask(Arc::clone(node), request.for_node(owner), node_timeout);
    let requests = nodes.iter().map(ask);
    let mut round = Round::new(quorum, requests);
    match round.decide().await {
        Decision::Reached => {}
        Decision::Busy => return Err(Refusal::transient(Error::Busy)),
        Decision::Rejected => return Err(Refusal::permanent(round.into_error())),
        Decision::Failed | Decision::Open => return Err(Refusal::transient(round.into_error())),
    }
    let (granted, late) = round.into_agreed();
    let held = Held::new(&request.key, owner, Hold::new(quorum, over_at), granted);
    let guard = Guard::new(nodes[0].renewal_thread(), quorum, held, request.node_timeout);
    if let Some(reason) = guard.lost_reason() {
        // It took longer than the lease.
        return Err(Refusal::transient(Error::Lost(reason)));
    }
    if !late.is_empty() {
        tokio::spawn(join(Arc::clone(guard.held()), late));
    }
    Ok(guard)
}

/// Asks one server.
async fn ask(client: Arc<Client>, request: NodeRequest, node_timeout: Duration) -> Result<Node, NodeFailure> {
    let (address, lease) = (client.address().clone(), request.options.lease);
    let guard = by_one(
        address.clone(),
        node_timeout,
        acquire::try_acquire(&client, request),
    )
    .await?;
    Ok(Node::new(guard, address, lease))
}

/// Servers that grant late join the lock. If the lock has ended by then, their grants are released: here, because the
/// renewal thread would have to be woken for it.
async fn join<F>(held: Arc<Held>, late: FuturesUnordered<F>)
where
    F: Future<Output = Result<Node, NodeFailure>>,
{
    late.for_each_concurrent(None, async |outcome| {
        let too_late = outcome.ok().and_then(|node| held.join(node));
        if let Some(guard) = too_late.and_then(Node::into_guard) {
            // The outcome is reported as an event.
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
                // Applied by the guard on the majority. The margin for clock drift is for leases only.
                max_hold: None,
                ..self.options
            },
            replicas: None,
            min_fence: None,
        }
    }
}

impl Refusal {
    fn transient(error: Error) -> Self {
        Self {
            error,
            is_final: false,
        }
    }

    fn permanent(error: Error) -> Self {
        Self {
            error,
            is_final: true,
        }
    }
}
