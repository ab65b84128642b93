//! Releasing a lock on several servers: on all of them at once. A majority decides.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::held::Held;
use super::majority::Majority;
use crate::error::{Error, LostReason, NoQuorum, NodeFailure};
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

/// Gives the lock up and releases it everywhere. `Ok`: it was held until then. The servers that a majority does not need
/// are released in the background, as all are if this is dropped.
pub(super) async fn release(held: &Arc<Held>) -> Result<(), Error> {
    let (reason, members) = held.give_up();
    if let Some(reason) = reason {
        // Dropped, what there may be left is released.
        return Err(Error::Lost(reason));
    }
    let outcome = release_all(held, members).await;
    let kind = match &outcome {
        Ok(()) => EventKind::Released { holds_left: 0 },
        Err(error) => EventKind::ReleaseFailed { error: error.clone() },
    };
    held.servers.reporter.report(&held.identity, kind);
    outcome
}

async fn release_all(held: &Arc<Held>, members: Vec<Arc<Guard>>) -> Result<(), Error> {
    let majority = held.servers.majority;
    let count = members.len();
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    let mut releases: FuturesUnordered<_> = members.into_iter().map(release_one).collect();
    while let Some((server, proves, outcome)) = releases.next().await {
        match outcome {
            Ok(_) if proves => tally.held += 1,
            Err(error) if error.is_lost() => tally.lost += 1,
            Ok(_) => {}
            Err(error) => failures.push(NodeFailure { server, error }),
        }
        if let Some(was_held) = tally.was_held(majority, count) {
            if !releases.is_empty() {
                let rest = releases.for_each(|_| std::future::ready(()));
                held.servers.renewal_thread().spawn_here(rest);
            }
            return was_held.then_some(()).ok_or(Error::Lost(LostReason::NotHeld));
        }
    }
    Err(Error::NoQuorum(NoQuorum {
        needed: majority.needed(),
        agreed: tally.held,
        failures,
    }))
}

/// Releases the lock on one server: which one, whether a success proves that the lock was held there, and the outcome.
async fn release_one(member: Arc<Guard>) -> (String, bool, Result<u64, Error>) {
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
