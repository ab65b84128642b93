//! Giving a hold back: while somebody waits for the outcome, and behind everybody's back.

use std::sync::Arc;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::client::Client;
use crate::clock::Moment;
use crate::connect::Link;
use crate::error::Error;
use crate::events::What;
use crate::held::Held;
use crate::hold::{Release, ReleaseStep};

/// Gives a hold back, and tries again until `until`: the holds that the owner has left.
pub(crate) async fn release(
    client: &Client,
    link: &Arc<Link>,
    held: &Held,
    mut release: Release,
    until: Moment,
) -> Result<u64, Error> {
    let command = held.ticket.release(held.fence);
    let mut backoff = Backoff::new();
    let outcome = loop {
        let answer = link.query(&command).await;
        let now = Moment::now();
        match release.on_answer(answer, now) {
            ReleaseStep::Done(outcome) => break outcome,
            ReleaseStep::Again(error) if now >= until => break Err(release.end(error)),
            ReleaseStep::Again(_) => sleep(backoff.pause(until.since(now))).await,
        }
    };
    match &outcome {
        Ok(holds_left) => client.report(
            &held.ticket,
            What::Released {
                holds_left: *holds_left,
            },
        ),
        Err(error) => client.report(&held.ticket, What::NotReleased { error }),
    }
    outcome
}

/// As [`release`], for a guard that is gone. It is tried until the lease ends.
pub(crate) async fn release_in_background(client: Arc<Client>, held: Arc<Held>, to_do: Release) {
    let until = to_do.deadline();
    if let Ok(keeper) = client.keeper() {
        // The outcome has been reported.
        let _ = release(&client, keeper.link(), &held, to_do, until).await;
    }
}
