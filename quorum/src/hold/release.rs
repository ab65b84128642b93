use std::time::Duration;

use super::{Hold, Renewal, State};
use crate::clock::BootInstant;
use crate::error::{Error, LostReason};

/// A release in progress, which may take several attempts.
///
/// A RELEASE with fence and request id is checked: `Ok` means that the owner held the lock until then, NOTHELD, NOTOWNER
/// and STALE that it did not. After an attempt without a reply, they may also mean that that attempt released the hold.
#[derive(Clone, Debug)]
pub(crate) struct PendingRelease {
    /// Why the lock was lost before, if it was.
    lost: Option<LostReason>,
    /// From then on the lease may have expired.
    deadline: BootInstant,
    /// Whether the server may have carried out an earlier attempt.
    may_be_done: bool,
    /// Whether this attempt was sent.
    is_sent: bool,
    /// Whether the connection resends requests by itself, so that a reply may be that to a second attempt.
    is_resent: bool,
    /// Instead of being released, the lock is kept for this long.
    pub keeps_for: Option<Duration>,
}

/// What to do after a reply to a release.
#[derive(Clone, Debug)]
pub(crate) enum ReleaseStep {
    /// Nothing: how many holds the owner has left, or why the lock was not held to the end.
    Done(Result<u64, Error>),
    /// Send it again.
    Retry(Error),
}

impl Hold {
    /// The holder gives the lock up: nothing is renewed from now on.
    pub fn give_up(&mut self, now: BootInstant) -> PendingRelease {
        let release = PendingRelease::new(self, now);
        if self.state == State::Held {
            self.state = State::GivenUp;
        }
        self.renewal = Renewal::Never;
        release
    }
}

impl PendingRelease {
    fn new(hold: &Hold, now: BootInstant) -> Self {
        Self {
            lost: hold.lost_reason(now),
            deadline: hold.deadline,
            may_be_done: false,
            is_sent: false,
            is_resent: false,
            keeps_for: hold
                .plan
                .keep_until
                .map(|until| until.since(now))
                .filter(|left| !left.is_zero()),
        }
    }

    /// Whether there may be something to release: the server has not said otherwise.
    pub fn is_needed(&self) -> bool {
        use LostReason::{NotHeld, NotOwner, Stale};
        !matches!(self.lost, Some(NotHeld | NotOwner | Stale))
    }

    /// Why the lock was lost before it was given up.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.lost
    }

    /// There is a connection for the next attempt.
    pub fn on_connected(&mut self, may_redirect: bool) {
        self.is_sent = true;
        self.is_resent = may_redirect;
    }

    /// The reply to an attempt, or the error instead of it.
    pub fn on_reply(&mut self, reply: Result<u64, Error>, now: BootInstant) -> ReleaseStep {
        let is_sent = std::mem::take(&mut self.is_sent);
        let error = match (reply, self.lost) {
            (Ok(left), None) => return ReleaseStep::Done(Ok(left)),
            (Ok(_), Some(reason)) => return ReleaseStep::Done(Err(Error::Lost(reason))),
            // It was certainly not carried out.
            (Err(error), _) if !is_sent => return self.on_failed(error, now),
            (Err(error), _) => error,
        };
        match error.reported_loss() {
            // After an extension that is repeated, they still mean a loss.
            Some(_) if self.keeps_for.is_none() && (self.may_be_done || self.is_resent) => {
                self.may_be_done = true;
                ReleaseStep::Done(Err(self.give_up(error)))
            }
            Some(reason) => ReleaseStep::Done(Err(Error::Lost(self.lost.unwrap_or(reason)))),
            None => {
                self.may_be_done |= error.is_ambiguous();
                self.on_failed(error, now)
            }
        }
    }

    fn on_failed(&self, error: Error, now: BootInstant) -> ReleaseStep {
        if error.is_transient() && now < self.deadline {
            ReleaseStep::Retry(error)
        } else {
            ReleaseStep::Done(Err(self.give_up(error)))
        }
    }

    /// The outcome if there are no more attempts.
    pub fn give_up(&self, last: Error) -> Error {
        match self.lost {
            Some(reason) => Error::Lost(reason),
            None if self.may_be_done => Error::Unconfirmed(last.into()),
            None => last,
        }
    }
}
