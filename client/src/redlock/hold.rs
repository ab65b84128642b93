//! What a client knows of a hold on several servers. Pure: time and the state of each server's hold come in.

use std::time::Duration;

use super::quorum::{Quorum, certain};
use crate::clock::BootInstant;
use crate::error::LostReason;

/// A hold on a majority of servers.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    quorum: Quorum,
    /// When it is over, renewed or not.
    over_at: Option<BootInstant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    GivenUp,
    Lost(LostReason),
}

/// The hold on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLease {
    /// For how long it lasts, by the client's knowledge of this one server.
    pub remaining: Duration,
    /// The longest lease that it was given.
    pub lease: Duration,
    /// Whether the server has said that it is gone.
    pub is_denied: bool,
}

impl Hold {
    pub fn new(quorum: Quorum, over_at: Option<BootInstant>) -> Self {
        Self {
            quorum,
            over_at,
            state: State::Held,
        }
    }

    /// For how long the lock is certainly held, if nothing is renewed: zero once it is lost or given up.
    pub fn remaining(&self, now: BootInstant, shares: &[NodeLease]) -> Duration {
        if self.state != State::Held {
            return Duration::ZERO;
        }
        let each = shares.iter().map(|share| certain(share.remaining, share.lease));
        let lasts = self.quorum.lasts(each);
        self.over_at
            .map_or(lasts, |over_at| over_at.since(now).min(lasts))
    }

    /// Why the lock is lost, if it is.
    pub fn lost_reason(&self, now: BootInstant, shares: &[NodeLease]) -> Option<LostReason> {
        match self.state {
            State::Lost(reason) => Some(reason),
            State::GivenUp => None,
            State::Held if !self.remaining(now, shares).is_zero() => None,
            State::Held => Some(self.reason(now, shares)),
        }
    }

    /// Time has passed: why the lock is lost, if that is new. Lost is forever.
    pub fn on_time(&mut self, now: BootInstant, shares: &[NodeLease]) -> Option<LostReason> {
        if self.state != State::Held {
            return None;
        }
        let reason = self.lost_reason(now, shares)?;
        self.state = State::Lost(reason);
        Some(reason)
    }

    /// The holder gives the lock up: whether it was lost by then.
    pub fn give_up(&mut self, now: BootInstant, shares: &[NodeLease]) -> Option<LostReason> {
        let reason = self.lost_reason(now, shares);
        self.state = reason.map_or(State::GivenUp, State::Lost);
        reason
    }

    /// Whether a server that grants late is still welcome.
    pub fn is_open(&self) -> bool {
        self.state == State::Held
    }

    fn reason(&self, now: BootInstant, shares: &[NodeLease]) -> LostReason {
        let denied = shares.iter().filter(|share| share.is_denied).count();
        if self.over_at.is_some_and(|over_at| over_at <= now) {
            LostReason::MaxHoldExceeded
        } else if denied >= self.quorum.blocking() {
            LostReason::NotHeld
        } else {
            LostReason::LeaseExpired
        }
    }
}
