//! The requests that release one lock on its servers, and what the replies tell.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;

use super::majority::Majority;
use super::task::give_way;
use crate::connect::Address;
use crate::error::{Error, LostReason, NodeFailure};

/// How long the releases on the servers that a majority does not need are deferred at most, if that is done. Timers are no
/// finer, and may be late by as much again.
pub(super) const DEFERRAL: Duration = Duration::from_millis(1);

/// The outcome of a release on one server: its address, and whether a success proves that the lock was held there.
pub(super) type Released = (Address, bool, Result<u64, Error>);

/// The releases of one lock on its servers. When `run` or `run_majority_first` ends, all requests have been handed to the
/// runtime, but for those that wait for a connection, or for the fence of their hold.
pub(super) struct Releases<R> {
    majority: Majority,
    /// On how many servers the lock is.
    members: usize,
    in_flight: FuturesUnordered<R>,
    tally: Tally,
    failures: Vec<NodeFailure>,
}

impl<R: Future<Output = Released>> Releases<R> {
    pub fn new(majority: Majority, members: usize) -> Self {
        Self {
            majority,
            members,
            in_flight: FuturesUnordered::new(),
            tally: Tally::default(),
            failures: Vec::new(),
        }
    }

    /// Sends the requests to a majority first, so that those to the others, and the grants that follow them, do not keep
    /// the next holder waiting for a core.
    pub async fn run_majority_first(&mut self, mut requests: impl Iterator<Item = R>) {
        let needed = self.majority.needed();
        self.send(requests.by_ref().take(needed)).await;
        // Without a decision, the others may be quicker.
        let _ = timeout(DEFERRAL, self.decide()).await;
        // A task that has been granted the lock meanwhile goes first.
        give_way().await;
        self.run(requests).await;
    }

    /// Sends all requests, and waits until a majority has decided.
    pub async fn run(&mut self, requests: impl Iterator<Item = R>) {
        self.send(requests).await;
        self.decide().await;
    }

    /// Sends one request after the other: a server works while the next one is made.
    async fn send(&mut self, requests: impl Iterator<Item = R>) {
        for request in requests {
            self.in_flight.push(request);
            // Polled once, it is handed to the runtime. Replies that have arrived are polled before it.
            while let Some(Some(released)) = self.in_flight.next().now_or_never() {
                self.on_reply(released);
            }
            give_way().await;
        }
    }

    /// Waits until a majority has decided, or no reply is missing.
    async fn decide(&mut self) {
        while self.was_held().is_none()
            && let Some(released) = self.in_flight.next().await
        {
            self.on_reply(released);
        }
    }

    fn on_reply(&mut self, (server, proves, outcome): Released) {
        match outcome {
            Ok(_) if proves => self.tally.held += 1,
            Err(error) if error.is_lost() => self.tally.lost += 1,
            Ok(_) => {}
            Err(error) => self.failures.push(NodeFailure::at(&server, error)),
        }
    }

    fn was_held(&self) -> Option<bool> {
        self.tally.was_held(self.majority, self.members)
    }

    /// The outcome, and what is in flight yet.
    pub fn end(self) -> (Result<(), Error>, FuturesUnordered<R>) {
        let outcome = match self.was_held() {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Lost(LostReason::NotHeld)),
            None => Err(self.majority.missed(self.tally.held, self.failures)),
        };
        (outcome, self.in_flight)
    }
}

/// The replies of the servers that tell something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// The hold was there until then.
    held: usize,
    /// It was not.
    lost: usize,
}

impl Tally {
    /// Whether the lock was held until the release, by that many members; `None`: not known yet.
    fn was_held(self, majority: Majority, members: usize) -> Option<bool> {
        if self.held >= majority.needed() {
            Some(true)
        } else if members - self.lost < majority.needed() {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::oneshot;
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::sleep;

    use super::*;
    use crate::sync::lock;

    /// A release on five servers, which reply when they are told to.
    struct Five {
        /// Of the requests that were sent.
        replies: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
        running: JoinHandle<Result<(), Error>>,
    }

    impl Five {
        fn release(is_majority_first: bool) -> Self {
            let replies = Arc::new(Mutex::new(Vec::new()));
            let sent = Arc::clone(&replies);
            let requests = (0..5).map(move |_| reply_to(Arc::clone(&sent)));
            let running = tokio::spawn(async move {
                let mut releases = Releases::new(Majority::of(5), 5);
                if is_majority_first {
                    releases.run_majority_first(requests).await;
                } else {
                    releases.run(requests).await;
                }
                releases.end().0
            });
            Self { replies, running }
        }

        /// How many requests were sent, when nothing more happens without a reply or the time.
        async fn sent(&self) -> usize {
            for _ in 0..100 {
                yield_now().await;
            }
            lock(&self.replies).len()
        }

        fn reply(&self, servers: impl IntoIterator<Item = usize>) {
            for server in servers {
                let (unused, _) = oneshot::channel();
                let reply = std::mem::replace(&mut lock(&self.replies)[server], unused);
                reply.send(()).expect("the reply is awaited");
            }
        }
    }

    async fn reply_to(sent: Arc<Mutex<Vec<oneshot::Sender<()>>>>) -> Released {
        let (reply, replied) = oneshot::channel();
        lock(&sent).push(reply);
        replied.await.expect("a reply");
        released()
    }

    fn released() -> Released {
        ("redis://127.0.0.1/".parse().expect("an address"), true, Ok(0))
    }

    #[tokio::test(start_paused = true)]
    async fn deferred_releases_are_sent_when_a_majority_has_decided() {
        let release = Five::release(true);
        assert_eq!(release.sent().await, 3);
        release.reply(0..2);
        assert_eq!(release.sent().await, 3);
        release.reply([2]);
        assert_eq!(release.sent().await, 5);
        assert!(release.running.is_finished(), "the others need not reply");
        release.running.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn deferred_releases_are_sent_when_one_of_a_majority_is_slow() {
        let release = Five::release(true);
        assert_eq!(release.sent().await, 3);
        release.reply([0, 2]);
        sleep(DEFERRAL * 2).await;
        assert_eq!(release.sent().await, 5);
        release.reply([4]);
        release.running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn release_is_sent_although_earlier_replies_are_there() {
        let sent = Arc::new(Mutex::new(0));
        let requests = (0..5).map(|_| {
            let sent = Arc::clone(&sent);
            async move {
                *lock(&sent) += 1;
                // The reply is there when the next request is sent.
                yield_now().await;
                released()
            }
        });
        let mut releases = Releases::new(Majority::of(5), 5);
        releases.run(requests).await;
        assert_eq!(*lock(&sent), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn releases_that_are_not_deferred_are_sent_at_once() {
        let release = Five::release(false);
        assert_eq!(release.sent().await, 5);
        release.reply([1, 3, 4]);
        release.running.await.unwrap().unwrap();
    }

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
