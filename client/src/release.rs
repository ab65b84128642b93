//! Releasing a hold: awaited, or in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
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
    let command = held.identity.release(held.fence);
    let mut backoff = Backoff::new();
    let mut until = None;
    let outcome = loop {
        let sent = match link.route().await {
            Ok(route) => Ok(route.query(&command).await),
            Err(error) => Err(error),
        };
        let now = BootInstant::now();
        let until = *until.get_or_insert(now + retry_timeout);
        let step = match sent {
            Ok(reply) => pending.on_reply(reply, now),
            Err(error) => pending.on_unsent(error, now),
        };
        match step {
            ReleaseStep::Done(outcome) => break outcome,
            ReleaseStep::Retry(error) if now >= until => break Err(pending.give_up(error)),
            ReleaseStep::Retry(_) => sleep(backoff.pause(until.since(now))).await,
        }
    };
    match &outcome {
        Ok(holds_left) => client.report(
            &held.identity,
            EventKind::Released {
                holds_left: *holds_left,
            },
        ),
        Err(error) => client.report(&held.identity, EventKind::ReleaseFailed { error }),
    }
    outcome
}

/// Releases the hold of a guard that was dropped, with retries until the lease ends. Never blocks.
pub(crate) fn release_in_background(client: &Arc<Client>, held: Arc<SharedHold>) {
    let pending = held.give_up(BootInstant::now());
    client.renewal_thread().unwatch(&held);
    if pending.is_needed() {
        let context = Arc::clone(client);
        client.renewal_thread().spawn(async move {
            let link = &context.renewal_context().link;
            // The outcome is reported as an event.
            let _ = release(&context, link, &held, pending, Duration::MAX).await;
        });
    }
}
