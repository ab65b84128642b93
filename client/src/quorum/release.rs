//! Releasing a lock on several servers: on all of them at once. A majority decides.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::held::Held;
use super::majority::Majority;
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

/// The outcome of a release on one server: which one, and whether a success proves that the lock was held there.
type Released = (String, bool, Result<u64, Error>);

/// Gives the lock up and releases it everywhere. `Ok`: it was held until then. The servers that a majority does not need
/// are released in the background, as all are if this is dropped.
pub(super) async fn release(held: &Arc<Held>) -> Result<(), Error> {
    let (reason, members) = held.give_up();
    if let Some(reason) = reason {
        // Dropped, what there may be left is released.
        return Err(Error::Lost(reason));
    }
    decide(held, members.into_iter().map(release_one).collect()).await
}

/// Gives up the lock of a guard that was dropped, if it was not released, and releases it in the background.
pub(super) fn release_in_background(held: &Arc<Held>) {
    let (reason, members) = held.give_up();
    if reason.is_none() && !members.is_empty() {
        let releases: FuturesUnordered<_> = members.into_iter().filter_map(release_later).collect();
        let renewal_thread = held.servers.renewal_thread();
        let held = Arc::clone(held);
        renewal_thread.spawn(async move { drop(decide(&held, releases).await) });
    }
}

/// Waits until a majority has decided, and reports the outcome.
async fn decide<F>(held: &Arc<Held>, mut releases: FuturesUnordered<F>) -> Result<(), Error>
where
    F: Future<Output = Released> + Send + 'static,
{
    let (majority, members) = (held.servers.majority, releases.len());
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    let mut was_held = None;
    while was_held.is_none()
        && let Some((server, proves, outcome)) = releases.next().await
    {
        match outcome {
            Ok(_) if proves => tally.held += 1,
            Err(error) if error.is_lost() => tally.lost += 1,
            Ok(_) => {}
            Err(error) => failures.push(NodeFailure { server, error }),
        }
        was_held = tally.was_held(majority, members);
    }
    let rest = releases.for_each(|_| std::future::ready(()));
    held.servers.renewal_thread().spawn_here(rest);
    let (outcome, kind) = match was_held {
        Some(true) => (Ok(()), EventKind::Released { holds_left: 0 }),
        not_held => {
            let error = match not_held {
                Some(_) => Error::Lost(LostReason::NotHeld),
                None => majority.missed(tally.held, failures),
            };
            (Err(error.clone()), EventKind::ReleaseFailed { error })
        }
    };
    held.servers.report(&held.identity, kind);
    outcome
}

async fn release_one(member: Arc<Guard>) -> Released {
    let server = member.server();
    // Where the fence is not known, the release says nothing, but an extension does.
    let proves = member.fence() != 0 || member.extend(Duration::from_millis(1)).await.is_ok();
    // An extension may be in progress on a slow server: dropped with it, the guard is released.
    let outcome = match Arc::into_inner(member) {
        Some(guard) => guard.release().await,
        None => Err(Error::no_response()),
    };
    (server, proves, outcome)
}

fn release_later(member: Arc<Guard>) -> Option<impl Future<Output = Released> + Send> {
    let (server, proves) = (member.server(), member.fence() != 0);
    let releasing = Arc::into_inner(member)?.give_up();
    Some(async move { (server, proves, releasing.await) })
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
