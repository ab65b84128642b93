//! What a client knows of a hold, and what it does about it. Pure: time and answers come in, actions come
//! out; nothing here waits, sends, or looks at a clock.
//!
//! The rules:
//! - A hold is lost when its safe deadline has passed, or when the server says so. Lost is for ever.
//! - A lease is renewed a third of its length after the last confirmed request, or a third of what the grant left
//!   of it, and again and again if that fails, for whatever reason, until the deadline. Then nothing is sent any more.
//! - Nothing is renewed beyond the total time that a hold may take, and not once it is given up.

mod release;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::clock::{BootInstant, safe_deadline};
use crate::error::Error;

pub(crate) use release::{Release, ReleaseStep};

/// A failed renewal is repeated after a 20th of what is left of the lease, but not sooner or later than this.
const SOONEST_RETRY: Duration = Duration::from_millis(5);
const LATEST_RETRY: Duration = Duration::from_secs(1);

/// What the holder wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The length of a lease.
    pub lease: Duration,
    /// Whether the lease is renewed without being asked.
    pub renews: bool,
    /// When the hold is over, renewed or not.
    pub over_at: Option<BootInstant>,
}

/// Why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease was not renewed in time, as far as is known: the server may have been out of reach.
    LeaseExpired,
    /// The hold has taken the longest time that was allowed.
    MaxHoldExceeded,
    /// The server says that nobody holds the lock.
    NotHeld,
    /// The server says that others hold the lock.
    NotOwner,
    /// The server says that the owner holds the lock by a later acquisition.
    Stale,
}

/// A hold as the client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    plan: Plan,
    /// Until then the lease certainly lasts.
    deadline: BootInstant,
    renewal: Renewal,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    GivenUp,
    Lost(LostReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Never,
    DueAt(BootInstant),
    UnderWay,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send EXTEND with this lease, and take a failure for granted after `retry_timeout`.
    Extend { lease: Duration, patience: Duration },
    /// Tell the holder.
    NotifyLost(LostReason),
}

impl Hold {
    /// A hold that was just granted, by the answer to a request that was sent at `sent`.
    pub fn granted(plan: Plan, sent: BootInstant, waited: Duration, lease: Duration) -> Self {
        let mut hold = Self {
            plan,
            deadline: safe_deadline(sent, waited, lease),
            renewal: Renewal::Never,
            state: State::Held,
        };
        // The lease began when the waiting ended. A grant that is told again, for its answer was lost, leaves less.
        let pause = lease.min(plan.lease) / 3;
        hold.renewal = hold.next_renewal(sent + waited + pause);
        hold
    }

    /// Whether the lock is certainly held.
    pub fn is_held(&self, now: BootInstant) -> bool {
        self.state == State::Held && now < self.end()
    }

    /// For how long the lock is certainly held, if nothing is renewed.
    pub fn remaining(&self, now: BootInstant) -> Duration {
        match self.state {
            State::Held => self.end().since(now),
            State::GivenUp | State::Lost(_) => Duration::ZERO,
        }
    }

    /// Why the lock is lost, if it is.
    pub fn lost_reason(&self, now: BootInstant) -> Option<LostReason> {
        match self.state {
            State::Lost(reason) => Some(reason),
            State::Held if now >= self.end() => Some(self.expiry_reason()),
            State::Held | State::GivenUp => None,
        }
    }

    /// Whether the holder has been told that the lock is lost.
    pub fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    /// When there is something to do next, answers aside.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        match (self.state, self.renewal) {
            (State::Held, Renewal::DueAt(due)) => Some(due.min(self.end())),
            (State::Held, Renewal::Never | Renewal::UnderWay) => Some(self.end()),
            (State::GivenUp | State::Lost(_), _) => None,
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: BootInstant) -> Option<Action> {
        if self.state != State::Held {
            return None;
        }
        if now >= self.end() {
            return Some(self.lose(self.expiry_reason()));
        }
        match self.renewal {
            Renewal::DueAt(due) if due <= now => Some(self.renew(now)),
            _ => None,
        }
    }

    /// An EXTEND that was sent at `sent` for a renewal was answered, or not.
    pub fn on_renewed(
        &mut self,
        sent: BootInstant,
        answer: &Result<Duration, Error>,
        now: BootInstant,
    ) -> Option<Action> {
        let action = self.on_extended(sent, answer, now);
        if self.renewal == Renewal::UnderWay {
            self.renewal = match answer {
                Ok(_) => self.next_renewal(sent + self.plan.lease / 3),
                Err(_) => self.next_renewal(now + retry_pause(self.deadline.since(now))),
            };
        }
        action
    }

    /// An EXTEND that was sent at `sent` was answered, or not.
    pub fn on_extended(
        &mut self,
        sent: BootInstant,
        answer: &Result<Duration, Error>,
        now: BootInstant,
    ) -> Option<Action> {
        if self.state != State::Held {
            return None;
        }
        if now >= self.end() {
            return Some(self.lose(self.expiry_reason()));
        }
        match answer {
            Ok(lease) => {
                self.deadline = self.deadline.max(safe_deadline(sent, Duration::ZERO, *lease));
                None
            }
            Err(error) => LostReason::reported_by(error).map(|reason| self.lose(reason)),
        }
    }

    /// The holder gives the lock up: nothing is renewed from now on. What is to be sent.
    pub fn give_up(&mut self, now: BootInstant) -> Release {
        let release = Release::new(self, now);
        if self.state == State::Held {
            self.state = State::GivenUp;
        }
        self.renewal = Renewal::Never;
        release
    }

    fn renew(&mut self, now: BootInstant) -> Action {
        self.renewal = Renewal::UnderWay;
        let to_the_end = self.plan.over_at.map(|over_at| enough_for(over_at.since(now)));
        Action::Extend {
            lease: to_the_end.map_or(self.plan.lease, |lease| lease.min(self.plan.lease)),
            patience: self.deadline.since(now) / 2,
        }
    }

    /// The time of a renewal, if one is of use.
    fn next_renewal(&self, at: BootInstant) -> Renewal {
        let lasts_to_the_end = self.plan.over_at.is_some_and(|over_at| self.deadline >= over_at);
        if self.plan.renews && !lasts_to_the_end {
            Renewal::DueAt(at)
        } else {
            Renewal::Never
        }
    }

    fn end(&self) -> BootInstant {
        self.plan
            .over_at
            .map_or(self.deadline, |over_at| over_at.min(self.deadline))
    }

    /// Why a hold whose end has come is lost.
    fn expiry_reason(&self) -> LostReason {
        match self.plan.over_at {
            Some(over_at) if over_at <= self.deadline => LostReason::MaxHoldExceeded,
            _ => LostReason::LeaseExpired,
        }
    }

    fn lose(&mut self, reason: LostReason) -> Action {
        self.state = State::Lost(reason);
        self.renewal = Renewal::Never;
        Action::NotifyLost(reason)
    }
}

impl LostReason {
    /// What an error of the server says of the holder; `None` when it says nothing.
    pub(crate) fn reported_by(error: &Error) -> Option<Self> {
        match error {
            Error::NotHeld => Some(Self::NotHeld),
            Error::NotOwner => Some(Self::NotOwner),
            Error::Stale => Some(Self::Stale),
            _ => None,
        }
    }
}

/// A lease whose safe deadline is at least so far away.
fn enough_for(time: Duration) -> Duration {
    time + time / 500 + Duration::from_millis(4)
}

fn retry_pause(left: Duration) -> Duration {
    (left / 20).clamp(SOONEST_RETRY, LATEST_RETRY)
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseExpired => "the lease was not renewed in time",
            Self::MaxHoldExceeded => "the lock was held for the longest time that was allowed",
            Self::NotHeld => "the server says that nobody holds the lock",
            Self::NotOwner => "the server says that others hold the lock",
            Self::Stale => "the server says that the owner has acquired the lock again since",
        })
    }
}
