//! Holds that end: released, kept for a while, or lost; and requests that are given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::clock::BootInstant;
use crate::command::Milliseconds;
use crate::error::{Error, Lost};
use crate::events::{End, EventKind};
use crate::hold::ReleaseStep;
use crate::request::{Held, Identity, Pending, Reply};
use crate::session::Session;
use crate::stage::{GivingBack, Releasing, Stage};

/// How long it is tried to give a request back, at least: a server that hangs may grant it long after it was sent.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(30);
/// Copies of a request that a lost connection, or a redirection, may still deliver arrive within this time.
const LATE_COPIES: Duration = Duration::from_millis(500);

/// Until when it is tried to give back a request with this lease. After that its lease ends it.
pub(crate) fn given_back_until(lease: Duration, now: BootInstant) -> BootInstant {
    now + lease.max(GIVEN_BACK_FOR)
}

impl Session {
    /// A guard gives up its hold.
    pub(crate) fn release(
        &mut self,
        held: &Arc<Held>,
        keeps: bool,
        reply: Option<Reply<()>>,
        pending: Pending,
        now: BootInstant,
    ) {
        let number = held.identity.number;
        let (release, time) = {
            let mut hold = held.hold();
            (hold.give_up(now, keeps), hold.held(now))
        };
        let is_held = matches!(self.stage(number), Some(Stage::Held(_)));
        if let Some(lost) = release.lost() {
            if is_held {
                self.lose(number, lost, now);
            }
            let _ = reply.map(|reply| reply.send(Err(Error::Lost(lost))));
            return;
        }
        held.token.cancel();
        let Some(Stage::Held(holding)) = self.enter(number, Stage::Over) else {
            return;
        };
        let releasing = Releasing {
            held: holding.held,
            has_copies: holding.has_copies,
            release,
            reply: reply.map(|reply| (reply, now + self.settings.patience)),
            time,
            last: None,
            _pending: pending,
        };
        self.enter(number, Stage::Releasing(Box::new(releasing)));
        self.ready(number);
    }

    /// A hold is lost: its guard is told. What may be left of it is given back.
    pub(crate) fn lose(&mut self, number: u64, lost: Lost, now: BootInstant) {
        if self.refuse(number, Err(Error::Lost(lost)), None, now) {
            return;
        }
        let Some(Stage::Held(holding)) = self.enter(number, Stage::Over) else {
            return;
        };
        let held = holding.held;
        held.token.cancel();
        let how = End::Lost(lost);
        let time = held.hold().held(now);
        self.report(&held.identity, EventKind::Ended { how, held: time });
        let is_told = matches!(lost, Lost::NotHeld | Lost::NotOwner | Lost::Stale);
        if is_told && !holding.has_copies {
            self.remove(number);
        } else {
            let identity = held.identity.clone();
            let until = given_back_until(Duration::ZERO, now);
            self.start_giving_back(number, identity, holding.has_copies, None, until);
        }
    }

    pub(crate) fn on_release_reply(&mut self, number: u64, reply: Result<Value, Error>, now: BootInstant) {
        // A cluster connection resends what a node redirected, or did not reply to.
        let is_resent = self.settings.is_cluster;
        let Some(Stage::Releasing(releasing)) = self.stage(number) else {
            return;
        };
        let remaining = reply.as_ref().ok().cloned().and_then(|value| {
            let lease = Milliseconds::from_redis_value(value).ok();
            lease.map(|Milliseconds(lease)| lease)
        });
        let keep_until = releasing.release.keep_until;
        match releasing.release.on_reply(reply.map(drop), is_resent, now) {
            ReleaseStep::Retry(error) => {
                let is_lost = error.is_ambiguous();
                releasing.note(error);
                self.retry(number, is_lost, now);
            }
            ReleaseStep::Done(Ok(())) if keep_until.is_some() => {
                self.on_kept(
                    number,
                    keep_until.unwrap_or(now),
                    remaining.unwrap_or_default(),
                    now,
                );
            }
            ReleaseStep::Done(outcome) => self.on_released(number, outcome, now),
        }
    }

    /// The lease lasts as long as the lock is to be kept, or longer: then it is released in time.
    fn on_kept(&mut self, number: u64, until: BootInstant, remaining: Duration, now: BootInstant) {
        let rest = until - now;
        let Some(Stage::Releasing(releasing)) = self.stage(number) else {
            return;
        };
        let how = End::Kept { rest };
        let (identity, held) = (releasing.held.identity.clone(), releasing.time);
        let reply = releasing.reply.take();
        self.report(&identity, EventKind::Ended { how, held });
        let _ = reply.map(|(reply, _)| reply.send(Ok(())));
        if remaining <= rest + Duration::from_millis(1) {
            return self.remove(number);
        }
        let giving = GivingBack {
            identity,
            until: now + remaining,
            is_repeated: false,
            // A process that ends does not wait that long.
            pending: None,
        };
        self.enter(number, Stage::GivingBack(Box::new(giving)));
        self.resume_at(number, until);
    }

    fn on_released(&mut self, number: u64, outcome: Result<(), Error>, now: BootInstant) {
        let Some(Stage::Releasing(mut releasing)) = self.enter(number, Stage::Over) else {
            return;
        };
        let how = match &outcome {
            Ok(()) => End::Released,
            Err(Error::Lost(lost)) => End::Lost(*lost),
            Err(error) => End::Unconfirmed(error.clone()),
        };
        let held = releasing.time;
        self.report(&releasing.held.identity, EventKind::Ended { how, held });
        releasing.reply(outcome);
        if !releasing.has_copies {
            return self.remove(number);
        }
        // A copy that arrives now would be granted to nobody.
        let giving = GivingBack {
            identity: releasing.held.identity.clone(),
            until: given_back_until(LATE_COPIES, now),
            is_repeated: false,
            pending: None,
        };
        self.enter(number, Stage::GivingBack(Box::new(giving)));
        self.resume_at(number, now + LATE_COPIES);
    }

    /// The caller of a release has waited long enough, or the lease is over.
    pub(crate) fn on_release_due(&mut self, number: u64, now: BootInstant) {
        let Some(Stage::Releasing(releasing)) = self.stage(number) else {
            return;
        };
        let last = releasing.last.clone().unwrap_or_else(Error::no_response);
        let error = releasing.release.failed(last);
        if now >= releasing.release.deadline() {
            self.on_released(number, Err(error), now);
        } else if releasing.reply.as_ref().is_some_and(|(_, by)| *by <= now) {
            // It goes on in the background.
            releasing.reply(Err(error));
        }
    }

    /// Takes a request back: that of an entry that is over, or one of which only an answer has told. What cannot be given
    /// back until then ends with its lease.
    pub(crate) fn give_back(
        &mut self,
        number: u64,
        identity: Identity,
        pending: Option<Pending>,
        until: BootInstant,
    ) {
        match self.stage(number) {
            Some(Stage::Over) => self.start_giving_back(number, identity, true, pending, until),
            Some(Stage::GivingBack(giving)) if giving.identity.attempt == identity.attempt => {
                self.ready(number)
            }
            _ => self.give_back_late(identity, until),
        }
    }

    /// Takes back an attempt that another one has followed.
    pub(crate) fn give_back_late(&mut self, identity: Identity, until: BootInstant) {
        let number = self.settings.numbers.fetch_add(1, Ordering::Relaxed);
        self.insert(number, Stage::Over);
        self.start_giving_back(number, identity, false, None, until);
    }

    fn start_giving_back(
        &mut self,
        number: u64,
        identity: Identity,
        is_repeated: bool,
        pending: Option<Pending>,
        until: BootInstant,
    ) {
        let giving = GivingBack {
            identity,
            until,
            is_repeated,
            pending,
        };
        self.enter(number, Stage::GivingBack(Box::new(giving)));
        self.ready(number);
    }

    pub(crate) fn on_given_back(&mut self, number: u64, reply: Result<Value, Error>, now: BootInstant) {
        let Some(Stage::GivingBack(giving)) = self.stage(number) else {
            return;
        };
        match reply {
            Err(error) if error.is_transient() && now < giving.until => {
                self.retry(number, error.is_ambiguous(), now);
            }
            _ if std::mem::take(&mut giving.is_repeated) => {
                giving.pending = None;
                self.resume_at(number, now + LATE_COPIES);
            }
            _ => self.remove(number),
        }
    }

    fn stage(&mut self, number: u64) -> Option<&mut Stage> {
        self.entries.get_mut(&number).map(|entry| &mut entry.stage)
    }
}
