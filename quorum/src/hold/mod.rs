//! The state of a hold as the client knows it. Pure: times and replies go in, actions come out; nothing here waits,
//! sends, or reads a clock.
//!
//! - A hold is lost when its safe deadline has passed or when the server says so. A lost hold stays lost.
//! - A lease is renewed after about a third of it, or a third of what the grant left of it. A failed renewal is retried
//!   until the deadline, whatever the failure. After that nothing is sent.
//! - Nothing is renewed beyond the maximum hold time, or after the hold was given up.

mod release;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::clock::{BootInstant, safe_deadline};
use crate::error::{Error, LostReason};

pub(crate) use release::{PendingRelease, ReleaseStep};

/// A failed renewal is retried after a 20th of the remaining lease, within these limits.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(5);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The length of a lease.
    pub lease: Duration,
    /// How long after a confirmed request the lease is renewed; `None`: never.
    pub renew_after: Option<Duration>,
    /// When the hold ends, renewed or not.
    pub over_at: Option<BootInstant>,
    /// Until then, a release only ends the renewals.
    pub keep_until: Option<BootInstant>,
}

/// The state of a hold.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    plan: Plan,
    /// The lease lasts at least until then.
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
    InFlight,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send EXTEND with this lease; without a reply within `timeout` it has failed.
    Extend { lease: Duration, timeout: Duration },
    /// Notify the holder.
    NotifyLost(LostReason),
}

impl Hold {
    /// A hold that was granted in reply to a request that was sent at `sent`.
    pub fn granted(plan: Plan, sent: BootInstant, waited: Duration, lease: Duration) -> Self {
        let mut hold = Self {
            plan,
            deadline: safe_deadline(sent, waited, lease),
            renewal: Renewal::Never,
            state: State::Held,
        };
        // The lease began when the wait ended. After a lost reply, the repeated grant has less of it left.
        hold.renewal = hold.next_renewal(sent + waited, lease / 3);
        hold
    }

    /// Whether the lock is held for certain.
    pub fn is_held(&self, now: BootInstant) -> bool {
        self.state == State::Held && now < self.end()
    }

    /// The length of a lease.
    pub fn lease(&self) -> Duration {
        self.plan.lease
    }

    /// How long the lock is held for certain without further renewal.
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

    /// When [`Hold::on_time`] has something to do.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        match (self.state, self.renewal) {
            (State::Held, Renewal::DueAt(due)) => Some(due.min(self.end())),
            (State::Held, Renewal::Never | Renewal::InFlight) => Some(self.end()),
            (State::GivenUp | State::Lost(_), _) => None,
        }
    }

    /// Called when [`Hold::wakes_at`] has passed.
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

    /// As [`Hold::on_extended`], for the EXTEND that renews the lease.
    pub fn on_renewed(
        &mut self,
        sent: BootInstant,
        answer: &Result<Duration, Error>,
        now: BootInstant,
    ) -> Option<Action> {
        let action = self.on_extended(sent, answer, now);
        if self.renewal == Renewal::InFlight {
            self.renewal = match answer {
                Ok(_) => self.next_renewal(sent, self.plan.lease / 3),
                Err(_) => self.next_renewal(now, retry_pause(self.deadline.since(now))),
            };
        }
        action
    }

    /// The reply to an EXTEND that was sent at `sent`, or the error instead of it.
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
            Err(error) => error.reported_loss().map(|reason| self.lose(reason)),
        }
    }

    /// Sets until when the hold lasts at most, and whether it is renewed.
    #[cfg(feature = "quorum")]
    pub fn replan(&mut self, over_at: Option<BootInstant>, renews: bool) {
        self.plan.over_at = over_at;
        if !renews {
            self.plan.renew_after = None;
            self.renewal = Renewal::Never;
        }
    }

    /// Has the lease renewed at `at` at the latest, if it is renewed at all.
    pub fn renew_by(&mut self, at: BootInstant) {
        if let Renewal::DueAt(due) = &mut self.renewal {
            *due = (*due).min(at);
        }
    }

    fn renew(&mut self, now: BootInstant) -> Action {
        self.renewal = Renewal::InFlight;
        let to_the_end = self.plan.over_at.map(|over_at| enough_for(over_at.since(now)));
        Action::Extend {
            lease: to_the_end.map_or(self.plan.lease, |lease| lease.min(self.plan.lease)),
            timeout: self.deadline.since(now) / 2,
        }
    }

    /// Renews after the planned interval from `start`, or after `at_most`, unless the lease lasts long enough.
    fn next_renewal(&self, start: BootInstant, at_most: Duration) -> Renewal {
        let lasts_to_the_end = self.plan.over_at.is_some_and(|over_at| self.deadline >= over_at);
        match self.plan.renew_after {
            Some(interval) if !lasts_to_the_end => Renewal::DueAt(start + interval.min(at_most)),
            _ => Renewal::Never,
        }
    }

    fn end(&self) -> BootInstant {
        self.plan
            .over_at
            .map_or(self.deadline, |over_at| over_at.min(self.deadline))
    }

    /// Why a hold is lost when its end has passed.
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

/// A lease whose safe deadline is at least this far away.
fn enough_for(time: Duration) -> Duration {
    time + time / 500 + Duration::from_millis(4)
}

fn retry_pause(left: Duration) -> Duration {
    (left / 20).clamp(MIN_RETRY_PAUSE, MAX_RETRY_PAUSE)
}
