//! Getting a lock on a majority of servers: all are asked at once, again and again.

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
use crate::acquire::{self, Wish as NodeWish};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::options::Options;
use crate::owner::Owner;
use crate::ticket::Ticket;

/// What is wanted of each server.
#[derive(Clone, Debug)]
pub(super) struct Wish {
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
pub(super) async fn try_acquire(nodes: &[Arc<Client>], wish: &Wish) -> Result<Guard, Error> {
    let outcome = ask_all(nodes, wish, &Owner::unique(), wish.node_timeout).await;
    outcome.map_err(|refusal| refusal.error)
}

/// Asks all servers until most agree, for at most as long as is to be waited.
pub(super) async fn acquire(nodes: &[Arc<Client>], wish: &Wish) -> Result<Guard, Error> {
    let begun = Moment::now();
    let wait = wish.options.wait_limit();
    let left = || {
        wait.map_or(Duration::MAX, |wait| {
            wait.saturating_sub(Moment::now().since(begun))
        })
    };
    // The same for all attempts: what one has left behind on a server is not in the way of the next.
    let owner = Owner::unique();
    let mut backoff = Backoff::new();
    loop {
        let patience = wish.node_timeout.min(left());
        let refusal = match ask_all(nodes, wish, &owner, patience).await {
            Ok(guard) => return Ok(guard),
            Err(refusal) if refusal.is_final => return Err(refusal.error),
            Err(refusal) => refusal,
        };
        sleep(backoff.pause(left())).await;
        if left().is_zero() {
            let failure = Some(refusal.error).filter(|error| !matches!(error, Error::Busy));
            return Err(Error::timeout(&wish.key, Moment::now().since(begun), failure));
        }
    }
}

/// Asks all servers at once. One that has not answered within `patience` has failed: that may be less than the
/// holder has for them later.
///
/// What was granted in vain is released when its guard is dropped, and what is still under way is taken back
/// when its future is; also when this future itself is dropped.
async fn ask_all(
    nodes: &[Arc<Client>],
    wish: &Wish,
    owner: &Owner,
    patience: Duration,
) -> Result<Guard, Refusal> {
    let quorum = Quorum::of(nodes.len());
    let over_at = wish.options.max_hold.map(|max_hold| Moment::now() + max_hold);
    let ask = |node| ask(Arc::clone(node), wish.for_node(owner), patience);
    let requests = nodes.iter().map(ask);
    let mut round = Round::new(quorum, requests);
    match round.decide().await {
        Decision::Reached => {}
        Decision::Busy => return Err(Refusal::for_now(Error::Busy)),
        Decision::Hopeless => return Err(Refusal::for_good(round.into_error())),
        Decision::Failed | Decision::Open => return Err(Refusal::for_now(round.into_error())),
    }
    let (granted, late) = round.into_agreed();
    let held = Held::new(&wish.key, owner, Hold::new(quorum, over_at), granted);
    let guard = Guard::new(nodes[0].keeper(), quorum, held, wish.node_timeout);
    if let Some(loss) = guard.loss() {
        // It took longer than the lease.
        return Err(Refusal::for_now(Error::Lost(loss)));
    }
    if !late.is_empty() {
        tokio::spawn(join(Arc::clone(guard.held()), late));
    }
    Ok(guard)
}

/// Asks one server.
async fn ask(client: Arc<Client>, wish: NodeWish, patience: Duration) -> Result<Node, NodeFailure> {
    let (address, lease) = (client.address().clone(), wish.options.lease);
    let guard = by_one(address.clone(), patience, acquire::try_acquire(&client, wish)).await?;
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

impl Wish {
    fn for_node(&self, owner: &Owner) -> NodeWish {
        NodeWish {
            ticket: Ticket::new(Arc::clone(&self.key), owner.clone()),
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
