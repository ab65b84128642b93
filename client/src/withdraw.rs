//! Taking back a request whose answer nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::Moment;
use crate::connect::{Link, Route, Seat};
use crate::error::Error;
use crate::events::What;
use crate::ticket::Ticket;

/// A connection whose request is not answered for so long, though it was taken back, is closed.
const SILENCE: Duration = Duration::from_secs(5);
/// What a lost connection still had under way has arrived by then: what was lost on the way is not sent again, see
/// [`Purpose::Requests`](crate::connect::Purpose::Requests). A connection on which a request waits is closed in the
/// normal way, and the system goes on sending for a while: what is granted by that ends with its lease.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// Where a request may be that has not been answered; by default nowhere.
#[derive(Default)]
pub(crate) struct Sent {
    /// On the shared connection.
    pub route: Option<Route>,
    /// On a connection of its own.
    pub seat: Option<Seat>,
    /// It was on a connection that is lost.
    pub is_lost: bool,
}

impl Sent {
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
pub(crate) async fn withdraw(client: Arc<Client>, ticket: Ticket, lease: Duration, sent: Sent) {
    let link = &client.upkeep().link;
    let mut is_settled = !sent.is_lost;
    if let Some(route) = sent.route {
        // Nothing overtakes the request there; but in a cluster it may have gone elsewhere.
        is_settled &= was_answered(&route.query(&ticket.withdraw()).await) && !route.has_detours();
    }
    if let Some(seat) = sent.seat {
        is_settled &= withdraw_waiting(&client, &ticket, seat).await;
    }
    if !is_settled {
        withdraw_blindly(link, &ticket, Moment::now() + lease).await;
    }
    client.report(&ticket, What::Withdrawn);
}

/// The request cannot be taken back on its own connection, which reads nothing until it is answered; nor on
/// another one alone, where the release may come before the request. So on both: once the second has been
/// answered on the waiting connection, so has the request. Whether that was so.
async fn withdraw_waiting(client: &Client, ticket: &Ticket, seat: Seat) -> bool {
    let command = ticket.withdraw();
    let answered = {
        let on_its_own = seat.query::<u64>(&command);
        tokio::pin!(on_its_own);
        let mut backoff = Backoff::new();
        let pressing = async {
            loop {
                let _: Result<u64, _> = client.upkeep().link.query(&command).await;
                let pause = backoff.pause(Duration::MAX);
                if let Ok(answer) = timeout(pause, &mut on_its_own).await {
                    return answer;
                }
            }
        };
        timeout(SILENCE, pressing).await
    };
    let Ok(answer) = answered else {
        // Closed: the server forgets the request, and takes back what it could not deliver.
        return false;
    };
    let is_answered = was_answered(&answer);
    client.room().leave(seat, answer.err().as_ref());
    is_answered
}

/// Whether the server has spoken, be it to say that there is nothing to release.
fn was_answered(answer: &Result<u64, Error>) -> bool {
    answer.as_ref().err().is_none_or(|error| !error.is_transient())
}

/// The request may arrive yet, by a connection that is lost. A hold that comes of it ends with its lease in
/// any case.
async fn withdraw_blindly(link: &Arc<Link>, ticket: &Ticket, until: Moment) {
    let command = ticket.withdraw();
    let mut backoff = Backoff::new();
    let mut is_second = false;
    loop {
        let answer = link.query::<u64>(&command).await;
        let is_again = answer.is_err_and(|error| error.is_transient());
        let left = until.since(Moment::now());
        if left.is_zero() || (is_second && !is_again) {
            return;
        }
        is_second |= !is_again;
        let pause = if is_again { backoff.pause(left) } else { STRAGGLERS };
        sleep(pause).await;
    }
}
