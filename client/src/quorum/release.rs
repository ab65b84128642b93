//! Releasing a lock on several servers: on all of them at once. A majority decides.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::held::Held;
use super::majority::Majority;
use super::servers::Servers;
use super::task::{give_way, outcome};
use crate::connect::Address;
use crate::error::{Error, LostReason, NodeFailure};
use crate::events::EventKind;
use crate::guard::Guard;

/// The replies of the servers that tell something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The hold was there until then.
    pub held: usize,
    /// It was not.
    pub lost: usize,
}

impl Tally {
    /// Whether the lock was held until the release, by that many members; `None`: not known yet.
    pub fn was_held(self, majority: Majority, members: usize) -> Option<bool> {
        if self.held >= majority.needed() {
            Some(true)
        } else if members - self.lost < majority.needed() {
            Some(false)
        } else {
            None
        }
    }
}

/// The outcome of a release on one server: its address, and whether a success proves that the lock was held there.
type Released = (Address, bool, Result<u64, Error>);

/// Gives the lock up and releases it everywhere. `Ok`: it was held until then. The servers that a majority does not need
/// are released in the background, as all are if this is dropped.
pub(super) async fn release(held: &Held) -> Result<(), Error> {
    let (reason, members) = held.give_up();
    if let Some(reason) = reason {
        // Dropped, what there may be left is released.
        return Err(Error::Lost(reason));
    }
    let servers = Arc::clone(&held.servers);
    let deciding = async move { decide(&servers, members, release_one).await };
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
            report(&held, &decide(&held.servers, members, release_later).await);
        });
    }
}

/// Releases the members, and waits until a majority has decided. The others go on in the background.
async fn decide<R>(
    servers: &Servers,
    members: Vec<Arc<Guard>>,
    release: impl Fn(Arc<Guard>) -> R + Send + 'static,
) -> Result<(), Error>
where
    R: Future<Output = Released> + Send + 'static,
{
    let (majority, count) = (servers.majority, members.len());
    // A server works while the next request is made.
    let members = stream::iter(members).then(async |member| {
        give_way().await;
        member
    });
    let mut releases = Box::pin(members.map(release).buffer_unordered(count));
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    let mut was_held = None;
    while was_held.is_none()
        && let Some((server, proves, outcome)) = releases.next().await
    {
        match outcome {
            Ok(_) if proves => tally.held += 1,
            Err(error) if error.is_lost() => tally.lost += 1,
            Ok(_) => {}
            Err(error) => failures.push(NodeFailure::at(&server, error)),
        }
        was_held = tally.was_held(majority, count);
    }
    let rest = releases.for_each(|_| std::future::ready(()));
    servers.renewal_thread().spawn_here(rest);
    match was_held {
        Some(true) => Ok(()),
        Some(false) => Err(Error::Lost(LostReason::NotHeld)),
        None => Err(majority.missed(tally.held, failures)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_of_replies_decides_whether_the_lock_was_held() {
        let majority = Majority::of(5);
        let decide = |held, lost, members| Tally { held, lost }.was_held(majority, members);
        assert_eq!(decide(3, 2, 5), Some(true));
        assert_eq!(decide(2, 2, 5), None);
        assert_eq!(decide(2, 3, 5), Some(false));
        assert_eq!(decide(0, 1, 3), Some(false), "the others had not granted it");
        assert_eq!(decide(2, 0, 3), None);
    }
}
