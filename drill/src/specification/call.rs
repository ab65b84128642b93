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
    /// Of a request that waits in an inbox.
    pub known: Known,
}

/// What the other records of a request tell: it may be sent again, and its answer is a record of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The fence of its grant.
    pub fence: Option<u64>,
    /// Its owner may have given it back before its answer was read.
    pub is_given_back: bool,
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
        // That a request was not granted tells nothing about the lock when the answer is read.
        let is_grant = matches!(op.reply, Recorded::Granted { .. });
        let is_other_answer = matches!(op.request, Command::Answer(_)) && !is_grant;
        if is_plain || is_other_answer || is_error && !is_refusal && !was_unblocked {
            return None;
        }
        let is_unknown = op.reply.is_unknown();
        let arrives_by = match op.reply {
            _ if is_unknown => op.replied + LATE,
            _ if matches!(op.request, Command::Answer(_)) => op.replied,
            Recorded::Granted { waited_ms, .. } => op.replied.saturating_sub(waited_ms * 1_000),
            _ => op.replied,
        };
        Some(Self {
            n,
            op,
            arrives_by: arrives_by.max(op.sent),
            is_certain: !is_unknown && !was_unblocked,
            known: Known::default(),
        })
    }

    /// Its answer goes to an inbox, whatever becomes of its connection.
    pub fn is_queued(&self) -> bool {
        let is_acquire = matches!(self.op.request, Command::Acquire(_));
        is_acquire && matches!(self.wait(), Some(Wait::Queue { .. }))
    }

    pub fn is_answer(&self) -> bool {
        matches!(self.op.request, Command::Answer(_))
    }

    fn wait(&self) -> Option<&Wait> {
        Some(&self.op.acquire()?.wait)
    }

    /// The owner and the request id, if it is a request for an inbox, or the answer to one.
    pub fn name_in_inbox(&self) -> Option<(&'a str, &'a str)> {
        let acquire = self
            .op
            .acquire()
            .filter(|_| self.is_queued() || self.is_answer())?;
        Some((&self.op.owner, acquire.reqid.as_deref()?))
    }

    /// The fence of its grant.
    pub fn fence(&self) -> Option<u64> {
        match self.op.reply {
            Recorded::Granted { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// Whether its client may have been gone while it waited, or has been told so. Or its time was over, or its process has
    /// ended.
    pub fn may_leave(&self) -> bool {
        if self.is_queued() {
            return self.known.fence.is_none();
        }
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
            Command::Answer(_) => return self.read(lock, moment.now),
        };
        let is_at_once = matches!(reply, Reply::Granted { .. });
        let waited = self.waited_ms() * 1_000;
        self.hear(&reply, moment.now)
            .filter(|_| !is_at_once || waited <= ROUNDING)
    }

    /// The answer is read: it was granted under this fence, and what was left of the lease says how long it lasts.
    fn read(&self, lock: &mut Lock, now: Span) -> Option<Progress> {
        let Recorded::Granted { fence, lease_ms, .. } = self.op.reply else {
            return None;
        };
        let waits = lock.queue.iter().any(|waiter| waiter.fence == Some(fence));
        let holder = lock.holders.iter_mut().find(|holder| holder.fence == fence);
        let is_possible = match holder {
            _ if waits || lock.fence < fence => false,
            Some(holder) if lease_ms > 0 => {
                let is_possible = is_left(holder.until, now, lease_ms);
                self.learn(&mut holder.until);
                is_possible
            }
            holder => holder.is_some() || lease_ms == 0 || self.known.is_given_back,
        };
        is_possible.then_some(Progress::Done)
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
        let is_told = matches!(self.op.reply, Recorded::Queued(_));
        is_possible.then_some(match reply {
            Reply::Waits if !is_told => Progress::Waits,
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
            // The answer of an inbox is another record.
            (Reply::Waits, _) if self.is_queued() => matches!(self.op.reply, Recorded::Queued(_)),
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
