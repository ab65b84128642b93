use super::Hold;
use crate::clock::BootInstant;
use crate::error::{Error, LostReason};

/// A release in progress, which may take several attempts.
///
/// A RELEASE with a request id is idempotent: the server never answers NOTHELD or NOTOWNER, but 0 holds left. So its
/// reply does not tell whether the lock was held until then. The local deadline does, unless the server loses
/// its data. Only STALE reports a loss.
#[derive(Clone, Debug)]
pub(crate) struct PendingRelease {
    /// Why the lock was lost before, if it was.
    lost: Option<LostReason>,
    /// From then on the lock counts as lost, for this reason.
    end: BootInstant,
    expiry_reason: LostReason,
    /// From then on the lease may have expired.
    deadline: BootInstant,
    /// Whether the server may have carried out an earlier attempt.
    may_be_done: bool,
}

/// What to do after a reply to a release.
#[derive(Clone, Debug)]
pub(crate) enum ReleaseStep {
    /// Nothing: how many holds the owner has left, or why the lock was not held to the end.
    Done(Result<u64, Error>),
    /// Send it again.
    Retry(Error),
}

impl PendingRelease {
    pub(super) fn new(hold: &Hold, now: BootInstant) -> Self {
        Self {
            lost: hold.lost_reason(now),
            end: hold.end(),
            expiry_reason: hold.expiry_reason(),
            deadline: hold.deadline,
            may_be_done: false,
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

    /// The reply to an attempt, or the error instead of it.
    pub fn on_reply(&mut self, reply: Result<u64, Error>, now: BootInstant) -> ReleaseStep {
        let was_held = self.lost.is_none() && now < self.end;
        match reply {
            Ok(left) if was_held => ReleaseStep::Done(Ok(left)),
            Ok(_) => ReleaseStep::Done(Err(self.lost_error(self.expiry_reason))),
            Err(error) => match LostReason::reported_by(&error) {
                // Either the attempt without a reply released it, or the server has lost its data.
                Some(_) if self.may_be_done && was_held => ReleaseStep::Done(Err(self.give_up(error))),
                Some(reason) => ReleaseStep::Done(Err(self.lost_error(reason))),
                None => {
                    self.may_be_done |= error.is_ambiguous();
                    self.retry_or_give_up(error, now)
                }
            },
        }
    }

    /// There was no connection to send an attempt on: it was certainly not carried out.
    pub fn on_unsent(&self, error: Error, now: BootInstant) -> ReleaseStep {
        self.retry_or_give_up(error, now)
    }

    fn retry_or_give_up(&self, error: Error, now: BootInstant) -> ReleaseStep {
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
            None if self.may_be_done => Error::Unconfirmed(Box::new(last)),
            None => last,
        }
    }

    fn lost_error(&self, reason: LostReason) -> Error {
        Error::Lost(self.lost.unwrap_or(reason))
    }
}
