//! Taking back a request whose answer nobody waits for.

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

/// A connection whose request is not answered for so long, though it was taken back, is closed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// What a lost connection still had under way has arrived by then: what was lost on the way is not sent again, see
/// [`Purpose::Requests`](crate::connect::Purpose::Requests). A connection on which a request waits is closed in the
/// normal way, and the system goes on sending for a while: what is granted by that ends with its lease.
const LATE_PACKET_WINDOW: Duration = Duration::from_millis(500);

/// Where a request may be that has not been answered; by default nowhere.
#[derive(Default)]
pub(crate) struct Outstanding {
    /// On the shared connection.
    pub route: Option<Route>,
    /// On a connection of its own.
    pub seat: Option<PooledConnection>,
    /// It was on a connection that is lost.
    pub is_lost: bool,
}

impl Outstanding {
    /// On a connection that is lost.
    pub fn lost() -> Self {
        Self {
            is_lost: true,
            ..Self::default()
        }
    }

    pub fn is_nowhere(&self) -> bool {
        self.route.is_none() && self.seat.is_none() && !self.is_lost
    }
}

/// Takes a request back, wherever it is: it waits no more, and what it was granted is given back.
pub(crate) async fn cancel(
    client: Arc<Client>,
    identity: RequestIdentity,
    lease: Duration,
    sent: Outstanding,
) {
    let link = &client.renewal_context().link;
    let mut is_settled = !sent.is_lost;
    if let Some(route) = sent.route {
        // Nothing overtakes the request there; but in a cluster it may have gone elsewhere.
        is_settled &= was_answered(&route.query(&identity.withdraw()).await) && !route.may_redirect();
    }
    if let Some(seat) = sent.seat {
        is_settled &= cancel_blocked(&client, &identity, seat).await;
    }
    if !is_settled {
        cancel_until_lease_end(link, &identity, BootInstant::now() + lease).await;
    }
    client.report(&identity, EventKind::Cancelled);
}

/// The request cannot be taken back on its own connection, which reads nothing until it is answered; nor on
/// another one alone, where the release may come before the request. So on both: once the second has been
/// answered on the waiting connection, so has the request. Whether that was so.
async fn cancel_blocked(client: &Client, identity: &RequestIdentity, seat: PooledConnection) -> bool {
    let command = identity.withdraw();
    let answered = {
        let on_its_own = seat.query::<u64>(&command);
        tokio::pin!(on_its_own);
        let mut backoff = Backoff::new();
        let pressing = async {
            loop {
                let _: Result<u64, _> = client.renewal_context().link.query(&command).await;
                let pause = backoff.pause(Duration::MAX);
                if let Ok(answer) = timeout(pause, &mut on_its_own).await {
                    return answer;
                }
            }
        };
        timeout(CANCEL_TIMEOUT, pressing).await
    };
    let Ok(answer) = answered else {
        // Closed: the server forgets the request, and takes back what it could not deliver.
        return false;
    };
    let is_answered = was_answered(&answer);
    client.pool().checkin(seat, answer.err().as_ref());
    is_answered
}

/// Whether the server has spoken, be it to say that there is nothing to release.
fn was_answered(answer: &Result<u64, Error>) -> bool {
    answer.as_ref().err().is_none_or(|error| !error.is_transient())
}

/// The request may arrive yet, by a connection that is lost. A hold that comes of it ends with its lease in
/// any case.
async fn cancel_until_lease_end(link: &Arc<Link>, identity: &RequestIdentity, until: BootInstant) {
    let command = identity.withdraw();
    let mut backoff = Backoff::new();
    let mut is_second = false;
    loop {
        let answer = link.query::<u64>(&command).await;
        let is_again = answer.is_err_and(|error| error.is_transient());
        let left = until.since(BootInstant::now());
        if left.is_zero() || (is_second && !is_again) {
            return;
        }
        is_second |= !is_again;
        let pause = if is_again {
            backoff.pause(left)
        } else {
            LATE_PACKET_WINDOW
        };
        sleep(pause).await;
    }
}
