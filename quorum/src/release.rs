//! Releasing a hold: awaited, or in the background.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::cancel::cancel_until_lease_end;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::connect::Link;
use crate::error::Error;
use crate::events::EventKind;
use crate::hold::{PendingRelease, ReleaseStep};
use crate::renewal::SharedHold;

/// Releases a hold, with retries until the lease or the timeout ends: how many holds the owner has left.
pub(crate) async fn release(
    client: &Client,
    link: &Arc<Link>,
    held: &SharedHold,
    mut pending: PendingRelease,
    retry_timeout: Duration,
) -> Result<u64, Error> {
    let command = match pending.keeps_for {
        Some(time) => held.extend(time),
        None => held.release(),
    };
    let until = BootInstant::now() + retry_timeout.max(client.longest_request);
    let outcome = match attempt(link, &command, &mut pending, until).await {
        ReleaseStep::Done(outcome) => outcome,
        // Boxed, to keep the future for the usual case small.
        ReleaseStep::Retry(error) => Box::pin(retry(link, &command, &mut pending, error, until)).await,
    };
    let outcome = outcome.map_err(|error| error.at_server(client.address()));
    if matches!(&outcome, Err(error) if error.is_lost() || matches!(error, Error::Unconfirmed(_))) {
        cancel_duplicates(client, held);
    }
    let (outcome, kind) = match (outcome, pending.keeps_for) {
        (Ok(_), Some(time)) => (Ok(held.holds), EventKind::Kept { time }),
        (Ok(holds_left), None) => (Ok(holds_left), EventKind::Released { holds_left }),
        (Err(error), _) => (Err(error.clone()), EventKind::ReleaseFailed { error }),
    };
    client.report(&held.identity, kind);
    outcome
}

async fn attempt(
    link: &Arc<Link>,
    command: &Cmd,
    pending: &mut PendingRelease,
    until: BootInstant,
) -> ReleaseStep {
    let sending = async {
        let route = link.route().await?;
        pending.on_connected(route.may_redirect());
        route.query(command).await
    };
    let reply = timeout(until.since(BootInstant::now()), sending).await;
    let reply = reply.unwrap_or_else(|_| Err(Error::no_response()));
    pending.on_reply(reply, BootInstant::now())
}

/// Further attempts, after one that failed.
async fn retry(
    link: &Arc<Link>,
    command: &Cmd,
    pending: &mut PendingRelease,
    mut error: Error,
    until: BootInstant,
) -> Result<u64, Error> {
    let mut backoff = Backoff::new();
    loop {
        let now = BootInstant::now();
        if now >= until {
            return Err(pending.give_up(error));
        }
        sleep(backoff.pause(until.since(now))).await;
        error = match attempt(link, command, pending, until).await {
            ReleaseStep::Done(outcome) => return outcome,
            ReleaseStep::Retry(error) => error,
        };
    }
}

/// Cancels the request of a hold that is lost, if it was repeated: a late duplicate may have left another hold or a
/// waiter of the same id behind, under another fence.
fn cancel_duplicates(client: &Client, held: &SharedHold) {
    if held.is_repeated {
        let (context, identity) = (Arc::clone(&held.context), held.identity.clone());
        let until = BootInstant::now() + held.with(|hold| hold.lease());
        client
            .renewal_thread
            .spawn(async move { cancel_until_lease_end(&context.link, &identity, until).await });
    }
}

/// Ends the renewals of a hold that is to be released, or kept if that was asked for.
///
/// # Errors
///
/// [`Error::Lost`]: the server has reported its loss, so there is nothing to release.
pub(crate) fn begin_release(
    client: &Client,
    held: &SharedHold,
    keeps: bool,
) -> Result<PendingRelease, Error> {
    let mut pending = held.give_up(BootInstant::now());
    client.renewal_thread.unwatch(held);
    let lost = pending.lost_reason();
    if let Some(reason) = lost.filter(|_| !pending.is_needed()) {
        cancel_duplicates(client, held);
        return Err(Error::Lost(reason));
    }
    if !keeps || lost.is_some() {
        pending.keeps_for = None;
    }
    Ok(pending)
}

/// Gives up the hold of a guard that was dropped. The release, with retries until the lease ends, is for the renewal
/// thread.
pub(crate) fn give_up(
    client: &Arc<Client>,
    held: Arc<SharedHold>,
) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
    let begun = begin_release(client, &held, false);
    let client = Arc::clone(client);
    async move {
        let link = &client.renewal_context.link;
        release(&client, link, &held, begun?, Duration::MAX).await
    }
}
