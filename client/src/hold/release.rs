use super::Loss;
use crate::clock::Moment;
use crate::error::Error;

/// A release, which may take several attempts.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    loss: Option<Loss>,
    deadline: Moment,
    /// Whether an earlier attempt may have been carried out, though its answer is unknown.
    may_be_done: bool,
}

/// What an answer to a release means.
#[derive(Clone, Debug)]
pub(crate) enum ReleaseStep {
    /// It is over: the holds that the owner has left, or why there is nothing to release.
    Done(Result<u64, Error>),
    /// Send it again.
    Again(Error),
}

impl Release {
    pub(super) fn new(loss: Option<Loss>, deadline: Moment) -> Self {
        Self {
            loss,
            deadline,
            may_be_done: false,
        }
    }

    /// Whether there may be something to release: the server has not said that there is not.
    pub fn is_needed(&self) -> bool {
        self.refusal().is_none()
    }

    /// What the server has said already.
    pub fn refusal(&self) -> Option<Error> {
        match self.loss? {
            Loss::NotHeld => Some(Error::NotHeld),
            Loss::NotOwner => Some(Error::NotOwner),
            Loss::Stale => Some(Error::Stale),
            Loss::LeaseEnded | Loss::HeldTooLong => None,
        }
    }

    /// From then on the lease may have ended by itself, and no repetition is of use.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// A release was answered, or not.
    pub fn on_answer(&mut self, answer: Result<u64, Error>, now: Moment) -> ReleaseStep {
        match answer {
            Ok(left) => ReleaseStep::Done(Ok(left)),
            Err(error) if error.is_lost() => ReleaseStep::Done(self.gone(error, now)),
            Err(error) if error.is_transient() => {
                self.may_be_done |= error.is_ambiguous();
                if now < self.deadline {
                    ReleaseStep::Again(error)
                } else {
                    ReleaseStep::Done(Err(self.end(error)))
                }
            }
            Err(error) => ReleaseStep::Done(Err(error)),
        }
    }

    /// What to say when nobody waits for the answer any longer.
    pub fn end(&self, last: Error) -> Error {
        if self.may_be_done {
            Error::Unconfirmed(Box::new(last))
        } else {
            last
        }
    }

    /// The server does not know the hold. If an earlier attempt may have been carried out, then that was
    /// it, for before the deadline the lease cannot have ended by itself.
    fn gone(&self, error: Error, now: Moment) -> Result<u64, Error> {
        match (self.may_be_done, now < self.deadline) {
            (false, _) => Err(error),
            (true, true) => Ok(0),
            (true, false) => Err(Error::Unconfirmed(Box::new(error))),
        }
    }
}
