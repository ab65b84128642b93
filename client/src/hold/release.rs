use super::{Hold, LostReason};
use crate::clock::BootInstant;
use crate::error::Error;

/// A release, which may take several attempts.
///
/// A RELEASE with a request id may be repeated: the server answers NOTHELD and NOTOWNER to none of them, but that all is
/// well, 0 holds. So it does not tell whether the lock was held until then. The deadline does, as long as the
/// server keeps what it granted. STALE is the one answer that tells of a loss.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// Why the lock was lost before, if it was.
    reason: Option<LostReason>,
    /// From then on the lock counts as lost, for this reason.
    end: BootInstant,
    expiry_reason: LostReason,
    /// From then on the lease may have ended by itself.
    deadline: BootInstant,
    /// Whether an earlier attempt may have been carried out, though its answer is unknown.
    may_be_done: bool,
}

/// What an answer to a release means.
#[derive(Clone, Debug)]
pub(crate) enum ReleaseStep {
    /// It is over: the holds that the owner has left, or why the lock was not held to the end.
    Done(Result<u64, Error>),
    /// Send it again.
    Again(Error),
}

impl Release {
    pub(super) fn new(hold: &Hold, now: BootInstant) -> Self {
        Self {
            reason: hold.lost_reason(now),
            end: hold.end(),
            expiry_reason: hold.expiry_reason(),
            deadline: hold.deadline,
            may_be_done: false,
        }
    }

    /// Whether there may be something to release: the server has not said that there is not.
    pub fn is_needed(&self) -> bool {
        !matches!(
            self.reason,
            Some(LostReason::NotHeld | LostReason::NotOwner | LostReason::Stale)
        )
    }

    /// Why the lock was lost before it was given up.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.reason
    }

    /// A release was answered, or not.
    pub fn on_answer(&mut self, answer: Result<u64, Error>, now: BootInstant) -> ReleaseStep {
        let was_held = self.reason.is_none() && now < self.end;
        match answer {
            Ok(left) if was_held => ReleaseStep::Done(Ok(left)),
            Ok(_) => ReleaseStep::Done(Err(self.lost(self.expiry_reason))),
            Err(error) => match LostReason::reported_by(&error) {
                // The attempt whose answer is unknown gave it back, or a server that has forgotten it: who knows.
                Some(_) if self.may_be_done && was_held => ReleaseStep::Done(Err(self.end(error))),
                Some(reason) => ReleaseStep::Done(Err(self.lost(reason))),
                None => {
                    self.may_be_done |= error.is_ambiguous();
                    self.again_or_end(error, now)
                }
            },
        }
    }

    /// There was no connection to send a release over: it was certainly not carried out.
    pub fn on_unsent(&self, error: Error, now: BootInstant) -> ReleaseStep {
        self.again_or_end(error, now)
    }

    fn again_or_end(&self, error: Error, now: BootInstant) -> ReleaseStep {
        if error.is_transient() && now < self.deadline {
            ReleaseStep::Again(error)
        } else {
            ReleaseStep::Done(Err(self.end(error)))
        }
    }

    /// What to say when nobody waits for the answer any longer.
    pub fn end(&self, last: Error) -> Error {
        match self.reason {
            Some(reason) => Error::Lost(reason),
            None if self.may_be_done => Error::Unconfirmed(Box::new(last)),
            None => last,
        }
    }

    fn lost(&self, reason: LostReason) -> Error {
        Error::Lost(self.reason.unwrap_or(reason))
    }
}
