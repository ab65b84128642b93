//! The state of a hold on several servers as the client knows it. Pure: times and the state of each lease go in.

use std::time::Duration;

use super::quorum::{Quorum, certain};
use crate::clock::BootInstant;
use crate::error::LostReason;

/// A hold on a majority of servers.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    quorum: Quorum,
    /// When the hold ends, renewed or not.
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
    /// How long it lasts for certain, as far as this server is concerned.
    pub remaining: Duration,
    /// The longest lease that was requested.
    pub lease: Duration,
    /// Whether the server has reported that it is lost.
    pub is_reported_lost: bool,
}

impl Hold {
    pub fn new(quorum: Quorum, over_at: Option<BootInstant>) -> Self {
        Self {
            quorum,
            over_at,
            state: State::Held,
        }
    }

    /// How long the lock is held for certain without further renewal. Zero once it is lost or given up.
    pub fn remaining(&self, now: BootInstant, leases: &[NodeLease]) -> Duration {
        if self.state != State::Held {
            return Duration::ZERO;
        }
        let each = leases.iter().map(|lease| certain(lease.remaining, lease.lease));
        let lasts = self.quorum.remaining(each);
        self.over_at
            .map_or(lasts, |over_at| over_at.since(now).min(lasts))
    }

    /// Why the lock is lost, if it is.
    pub fn lost_reason(&self, now: BootInstant, leases: &[NodeLease]) -> Option<LostReason> {
        match self.state {
            State::Lost(reason) => Some(reason),
            State::GivenUp => None,
            State::Held if !self.remaining(now, leases).is_zero() => None,
            State::Held => Some(self.reason(now, leases)),
        }
    }

    /// Why the lock is lost, if that is new. A lost hold stays lost.
    pub fn on_time(&mut self, now: BootInstant, leases: &[NodeLease]) -> Option<LostReason> {
        if self.state != State::Held {
            return None;
        }
        let reason = self.lost_reason(now, leases)?;
        self.state = State::Lost(reason);
        Some(reason)
    }

    /// Gives the lock up: why it was lost before, if it was.
    pub fn give_up(&mut self, now: BootInstant, leases: &[NodeLease]) -> Option<LostReason> {
        let reason = self.lost_reason(now, leases);
        self.state = reason.map_or(State::GivenUp, State::Lost);
        reason
    }

    /// Whether a server that grants late may join.
    pub fn is_open(&self) -> bool {
        self.state == State::Held
    }

    fn reason(&self, now: BootInstant, leases: &[NodeLease]) -> LostReason {
        let denied = leases.iter().filter(|lease| lease.is_reported_lost).count();
        if self.over_at.is_some_and(|over_at| over_at <= now) {
            LostReason::MaxHoldExceeded
        } else if denied >= self.quorum.blocking() {
            LostReason::NotHeld
        } else {
            LostReason::LeaseExpired
        }
    }
}
