//! Cancelling a request whose reply is not awaited any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::connect::{Link, PooledConnection, Route};
use crate::error::Error;
use crate::events::EventKind;
use crate::identity::RequestIdentity;

/// A connection whose blocked request is not answered within this time after the cancellation is closed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Packets of a lost connection arrive within this time, because the system does not retransmit them: see
/// [`Purpose::Requests`](crate::connect::Purpose::Requests). Connections for blocked requests are closed in the usual
/// way, and the system may retransmit for longer; a grant that results from that ends with its lease.
const LATE_PACKET_WINDOW: Duration = Duration::from_millis(500);

/// Where a request without a reply may be; by default nowhere.
#[derive(Default)]
pub(crate) struct Outstanding {
    /// On the shared connection.
    pub route: Option<Route>,
    /// On a connection of its own.
    pub connection: Option<PooledConnection>,
    /// On a connection that was lost.
    pub is_lost: bool,
}

impl Outstanding {
    pub fn is_nowhere(&self) -> bool {
        self.route.is_none() && self.connection.is_none() && !self.is_lost
    }

    /// Whether the reply to a blocked request is missing.
    pub fn is_blocked(&self) -> bool {
        self.connection.is_some()
    }
}

/// Cancels a request wherever it is: it leaves the queue, and what it was granted is released.
pub(crate) async fn cancel(
    client: Arc<Client>,
    identity: RequestIdentity,
    lease: Duration,
    sent: Outstanding,
) {
    let link = &client.renewal_context.link;
    let mut is_settled = !sent.is_lost;
    if let Some(route) = sent.route {
        // Requests on one connection stay in order; but a cluster connection may have redirected the first one.
        is_settled &= has_reply(&route.query(&identity.cancel()).await) && !route.may_redirect();
    }
    if let Some(connection) = sent.connection {
        is_settled &= cancel_blocked(&client, &identity, connection).await;
    }
    if !is_settled {
        cancel_until_lease_end(link, &identity, BootInstant::now() + lease).await;
    }
    client.report(&identity, EventKind::Cancelled);
}

/// Whether the request is settled.
///
/// The server reads nothing from the blocked connection until the request is answered, and a release on another
/// connection may overtake the request. So the release is sent on both: when the one on the blocked connection is
/// answered, the request before it has been, too.
async fn cancel_blocked(client: &Client, identity: &RequestIdentity, connection: PooledConnection) -> bool {
    let command = identity.cancel();
    let reply = {
        let in_order = connection.query::<u64>(&command);
        tokio::pin!(in_order);
        let mut backoff = Backoff::new();
        let unblocking = async {
            loop {
                let _: Result<u64, _> = client.renewal_context.link.query(&command).await;
                let pause = backoff.pause(Duration::MAX);
                if let Ok(reply) = timeout(pause, &mut in_order).await {
                    return reply;
                }
            }
        };
        timeout(CANCEL_TIMEOUT, unblocking).await
    };
    let Ok(reply) = reply else {
        // Closed: the server removes the waiter, and rolls back a grant that it cannot deliver.
        return false;
    };
    let is_settled = has_reply(&reply);
    client.pool.checkin(connection, reply.err().as_ref());
    is_settled
}

/// Whether the server has replied, even if only that there is nothing to release.
fn has_reply(reply: &Result<u64, Error>) -> bool {
    reply.as_ref().err().is_none_or(|error| !error.is_transient())
}

/// The request may still arrive from a lost connection. What it is granted ends with its lease at the latest.
pub(crate) async fn cancel_until_lease_end(link: &Arc<Link>, identity: &RequestIdentity, until: BootInstant) {
    let command = identity.cancel();
    let mut backoff = Backoff::new();
    let mut is_second = false;
    loop {
        let reply = link.query::<u64>(&command).await;
        let failed = reply.is_err_and(|error| error.is_transient());
        let left = until.since(BootInstant::now());
        if left.is_zero() || (is_second && !failed) {
            return;
        }
        is_second |= !failed;
        let pause = if failed {
            backoff.pause(left)
        } else {
            LATE_PACKET_WINDOW
        };
        sleep(pause).await;
    }
}
