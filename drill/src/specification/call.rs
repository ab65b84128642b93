//! A recorded request, as a call of the specification.

use super::lock::{Lock, Moment, Name, Reply, Request, Span};
use crate::history::{Acquire, GUARDED, Micros, Op, Reply as Recorded, Request as Command, Wait};

/// Servers and clients round times to milliseconds.
pub const ROUNDING: Micros = 2_000;
/// What was sent on a connection that is lost reaches the server within this time, or never.
const LATE: Micros = 2_000_000;

/// A request about one lock.
pub struct Call<'a> {
    /// Its index in the history.
    pub n: usize,
    pub op: &'a Op,
    /// Until when it can arrive at its server.
    pub arrives_by: Micros,
    /// Whether it has arrived for certain.
    pub is_certain: bool,
}

/// How a call arrives.
#[derive(Clone, Copy, Default)]
pub struct Assumed {
    /// The fence of its grant, if its reply does not say.
    pub fence: Option<u64>,
    /// The lease, if it may have been any of several requests.
    pub lease: Option<Span>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Waits,
    Done,
}

impl<'a> Call<'a> {
    /// `None` for what changes no lock and tells nothing about it.
    pub fn of(n: usize, op: &'a Op) -> Option<Self> {
        let is_refusal = op.reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"]);
        let is_plain = matches!(&op.request, Command::Push(push) if !push.list.ends_with(GUARDED));
        // It waited, or it was not served at all.
        let was_unblocked = op.reply.is_error(&["UNBLOCKED"]);
        let is_error = matches!(op.reply, Recorded::Error(_));
        if is_plain || is_error && !is_refusal && !was_unblocked {
            return None;
        }
        let is_unknown = op.reply.is_unknown();
        let arrives_by = match op.reply {
            _ if is_unknown => op.replied + LATE,
            Recorded::Granted { waited_ms, .. } => op.replied.saturating_sub(waited_ms * 1_000),
            _ => op.replied,
        };
        Some(Self {
            n,
            op,
            arrives_by: arrives_by.max(op.sent),
            is_certain: !is_unknown && !was_unblocked,
        })
    }

    /// The fence of its grant.
    pub fn fence(&self) -> Option<u64> {
        match self.op.reply {
            Recorded::Granted { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// Whether its client may have been gone while it waited, or has been told so.
    pub fn may_leave(&self) -> bool {
        matches!(self.op.reply, Recorded::Null | Recorded::Error(_)) || self.op.reply.is_unknown()
    }

    /// It arrives at the server. `None`: it cannot have had its reply then.
    pub fn arrive(
        &self,
        call: usize,
        assumed: Assumed,
        lock: &mut Lock,
        moment: &mut Moment<'_>,
    ) -> Option<Progress> {
        let owner: &str = &self.op.owner;
        let reply = match &self.op.request {
            Command::Acquire(acquire) => {
                let waits = acquire.wait != Wait::No;
                lock.acquire(self.request(call, acquire, assumed), waits, moment)?
            }
            Command::Release {
                fence,
                reqid: Some(id),
                ..
            } => lock.undo(owner, id, *fence, moment)?,
            Command::Release { fence, all, .. } => lock.release(owner, *fence, *all, moment)?,
            Command::Extend { lease_ms, fence } => {
                lock.extend(owner, *fence, Span::of_ms(*lease_ms), moment)?
            }
            Command::Push(push) => lock.guard(owner, push.element.fence),
        };
        let is_at_once = matches!(reply, Reply::Granted { .. });
        let waited = self.waited_ms() * 1_000;
        self.hear(&reply, moment.now)
            .filter(|_| !is_at_once || waited <= ROUNDING)
    }

    fn waited_ms(&self) -> u64 {
        match self.op.reply {
            Recorded::Granted { waited_ms, .. } => waited_ms,
            _ => 0,
        }
    }

    fn request(&self, call: usize, acquire: &Acquire, assumed: Assumed) -> Request {
        Request {
            call,
            owner: Name::from(&*self.op.owner),
            id: acquire.reqid.as_deref().map(Name::from),
            limit: acquire.limit,
            lease: assumed.lease.unwrap_or(Span::of_ms(acquire.lease_ms)),
            fence: self.fence().or(assumed.fence),
        }
    }

    /// It gets this reply. `None`: it had another one.
    pub fn hear(&self, reply: &Reply, now: Span) -> Option<Progress> {
        let is_possible = self.op.reply.is_unknown() || self.agrees(reply, now);
        is_possible.then_some(match reply {
            Reply::Waits => Progress::Waits,
            _ => Progress::Done,
        })
    }

    /// What a grant after a wait says about its lease.
    pub fn learn(&self, until: &mut Span) {
        if let Recorded::Granted {
            lease_ms, waited_ms, ..
        } = self.op.reply
        {
            let from = self.op.sent + (waited_ms + lease_ms) * 1_000;
            until.from = until.from.max(from.saturating_sub(ROUNDING));
            until.to = until.to.min(self.op.replied + (lease_ms + 1) * 1_000);
        }
    }

    fn agrees(&self, reply: &Reply, now: Span) -> bool {
        match (reply, &self.op.reply) {
            (Reply::Waits, Recorded::Granted { .. } | Recorded::Null) => true,
            (Reply::Waits, recorded) => recorded.is_error(&["UNBLOCKED"]),
            (
                Reply::Granted { fence, holds, until },
                Recorded::Granted {
                    fence: recorded,
                    holds: count,
                    lease_ms,
                    waited_ms,
                },
            ) => {
                let is_then = now.to + ROUNDING >= self.op.sent + waited_ms * 1_000;
                fence == recorded && *holds as u64 == *count && is_then && is_left(*until, now, *lease_ms)
            }
            (Reply::NotGranted, Recorded::Null) => true,
            (Reply::Holds(left), Recorded::Remaining(recorded)) => *left as u64 == *recorded,
            (Reply::Lease(until), Recorded::Lease(ms)) => is_left(*until, now, *ms),
            (Reply::Written(length), Recorded::Length(recorded)) => length == recorded,
            (Reply::Error(word), recorded) => recorded.is_error(&[word]),
            _ => false,
        }
    }
}

/// Whether so much can be left of a lease.
fn is_left(until: Span, now: Span, ms: u64) -> bool {
    let micros = ms * 1_000;
    until.from <= now.to + micros + ROUNDING && now.from + micros <= until.to + ROUNDING
}
