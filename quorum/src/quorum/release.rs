//! Releasing a lock on all of its servers. A majority decides whether it was held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::StreamExt;

use super::held::Held;
use super::releases::{Released, Releases};
use super::servers::Servers;
use super::task::outcome;
use crate::error::Error;
use crate::events::EventKind;
use crate::guard::Guard;

/// Gives the lock up and releases it everywhere. `Ok`: it was held until then. The servers that a majority does not need
/// are released in the background, as all are if this is dropped.
pub(super) async fn release(held: &Held) -> Result<(), Error> {
    let (reason, members) = held.give_up();
    if let Some(reason) = reason {
        // Dropped, what there may be left is released.
        return Err(Error::Lost(reason));
    }
    let (servers, key) = (Arc::clone(&held.servers), Arc::clone(&held.identity.key));
    let deciding = async move { decide(&servers, &key, members, release_one).await };
    let outcome = outcome(held.servers.renewal_thread().spawn_here(deciding).await);
    report(held, &outcome);
    outcome
}

/// Gives up the lock of a guard that was dropped, if it was not released, and releases it in the background.
pub(super) fn release_in_background(held: &Arc<Held>) {
    let (reason, members) = held.give_up();
    if reason.is_none() && !members.is_empty() {
        let renewal_thread = held.servers.renewal_thread();
        let held = Arc::clone(held);
        renewal_thread.spawn(async move {
            let outcome = decide(&held.servers, &held.identity.key, members, release_later).await;
            report(&held, &outcome);
        });
    }
}

/// Releases the members, and waits until a majority has decided. The others go on in the background.
async fn decide<R>(
    servers: &Servers,
    key: &[u8],
    members: Vec<Arc<Guard>>,
    release: impl Fn(Arc<Guard>) -> R,
) -> Result<(), Error>
where
    R: Future<Output = Released> + Send + 'static,
{
    let begun = Instant::now();
    let mut releases = Releases::new(servers.majority, members.len());
    let requests = members.into_iter().map(release);
    // Nobody waits for a lock that is not contended.
    if servers.pace.defers() && servers.places().is_contended(key) {
        releases.run_majority_first(requests).await;
    } else {
        releases.run(requests).await;
    }
    servers.pace.on_released(begun.elapsed());
    let (outcome, in_flight) = releases.end();
    let in_flight = in_flight.for_each(|_| std::future::ready(()));
    servers.renewal_thread().spawn_here(in_flight);
    outcome
}

fn report(held: &Held, outcome: &Result<(), Error>) {
    let kind = match outcome {
        Ok(()) => EventKind::Released { holds_left: 0 },
        Err(error) => EventKind::ReleaseFailed { error: error.clone() },
    };
    held.servers.report(&held.identity, kind);
}

async fn release_one(member: Arc<Guard>) -> Released {
    let server = member.server();
    // Where the fence is not known, the release says nothing, but an extension does. Boxed, as it is rare.
    let proves = member.fence() != 0 || Box::pin(member.extend(Duration::from_millis(1))).await.is_ok();
    // An extension may be in progress on a slow server: dropped with it, the guard is released.
    let outcome = match Arc::into_inner(member) {
        Some(guard) => guard.release().await,
        None => Err(Error::no_response()),
    };
    (server, proves, outcome)
}

async fn release_later(member: Arc<Guard>) -> Released {
    let (server, proves) = (member.server(), member.fence() != 0);
    let outcome = match Arc::into_inner(member) {
        Some(guard) => guard.give_up().await,
        None => Err(Error::no_response()),
    };
    (server, proves, outcome)
}
