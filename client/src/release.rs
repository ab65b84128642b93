//! Giving a hold back: while somebody waits for the outcome, and behind everybody's back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::BootInstant;
use crate::connect::Link;
use crate::error::Error;
use crate::events::EventKind;
use crate::hold::{Release, ReleaseStep};
use crate::renewal::SharedHold;

/// Gives a hold back, and tries again until the lease ends, or for as long as there is patience: the holds
/// that the owner has left.
pub(crate) async fn release(
    client: &Client,
    link: &Arc<Link>,
    held: &SharedHold,
    mut release: Release,
    patience: Duration,
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
        let until = *until.get_or_insert(now + patience);
        let step = match sent {
            Ok(answer) => release.on_answer(answer, now),
            Err(error) => release.on_unsent(error, now),
        };
        match step {
            ReleaseStep::Done(outcome) => break outcome,
            ReleaseStep::Again(error) if now >= until => break Err(release.end(error)),
            ReleaseStep::Again(_) => sleep(backoff.pause(until.since(now))).await,
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

/// As [`release`], for a guard that is gone. It is tried until the lease ends.
pub(crate) async fn release_in_background(client: Arc<Client>, held: Arc<SharedHold>, to_do: Release) {
    // The outcome has been reported.
    let _ = release(&client, &held.context.link, &held, to_do, Duration::MAX).await;
}
