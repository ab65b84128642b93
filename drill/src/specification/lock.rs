//! The rules of `spec/lock.qnt` and of GUARD, written down again: from a lock and a request to a lock and a reply.
//!
//! Only about time it says less, because nobody outside of a server knows its times exactly: that a lease has ended, or a
//! waiter leaves, is a step of its own, for the caller to choose. `tests/spec` replays runs of the specification here.

use std::rc::Rc;

use crate::history::{Limit, Micros};

/// An owner, or a request id.
pub type Name = Rc<str>;

/// When something happens, or how long it takes: not before `from`, not after `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    pub from: Micros,
    pub to: Micros,
}

/// An owner that holds the lock until its lease ends. Each of its holds is listed by its request id, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub owner: Name,
    pub fence: u64,
    pub limit: Limit,
    pub until: Span,
    pub holds: Vec<Option<Name>>,
}

/// An ACQUIRE, also while it waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Names the one that gets the reply.
    pub call: usize,
    pub owner: Name,
    pub id: Option<Name>,
    pub limit: Limit,
    pub lease: Span,
    /// The fence of its grant, if it is known from elsewhere.
    pub fence: Option<u64>,
}

/// A lock and its queue, oldest first, the last fence that was given out, and the number of writes through GUARD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    pub holders: Vec<Holder>,
    pub queue: Vec<Request>,
    pub fence: u64,
    pub writes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted { fence: u64, holds: usize, until: Span },
    NotGranted,
    Waits,
    Holds(usize),
    Lease(Span),
    Written(u64),
    Error(&'static str),
}

/// When something happens, and what comes of it.
pub struct Moment<'a> {
    pub now: Span,
    /// A fence after this one, for a grant whose fence is not known. `None`: there can be none.
    pub next_fence: Box<dyn Fn(u64) -> Option<u64> + 'a>,
    /// The replies to waiters, by their calls.
    pub told: Vec<(usize, Reply)>,
}

impl Span {
    /// So long.
    pub fn of_ms(ms: u64) -> Self {
        Self {
            from: ms * 1_000,
            to: ms * 1_000,
        }
    }

    /// So much later.
    pub fn after(self, time: Self) -> Self {
        Self {
            from: self.from + time.from,
            to: self.to.saturating_add(time.to),
        }
    }

    fn later(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            to: self.to.max(other.to),
        }
    }
}

impl Holder {
    fn granted(&self) -> Reply {
        Reply::Granted {
            fence: self.fence,
            holds: self.holds.len(),
            until: self.until,
        }
    }
}

/// The requests. `None`: what is known of fences rules this out.
impl Lock {
    /// A holder re-enters. A new owner is granted the lock if it fits and nobody waits, otherwise it may wait.
    pub fn acquire(&mut self, request: Request, waits: bool, moment: &mut Moment<'_>) -> Option<Reply> {
        self.settle(moment)?;
        if let Some(holder) = self.held_by(&request.owner) {
            Some(reenter(holder, &request, moment.now))
        } else if self.queue.is_empty() && self.fits(request.limit) {
            self.grant(&request, moment)
        } else if waits {
            Some(self.enqueue(request, moment))
        } else {
            Some(Reply::NotGranted)
        }
    }

    /// RELEASE: one hold, without a request id if there is any, else the latest; or all.
    pub fn release(
        &mut self,
        owner: &str,
        fence: Option<u64>,
        all: bool,
        moment: &mut Moment<'_>,
    ) -> Option<Reply> {
        let reply = match self.refusal(owner, fence) {
            Some(error) => Reply::Error(error),
            None => self.change_holds(owner, |holds| {
                let plain = holds.iter().rposition(Option::is_none);
                match plain.or(holds.len().checked_sub(1)) {
                    Some(last) if !all => _ = holds.remove(last),
                    _ => holds.clear(),
                }
            }),
        };
        self.settle(moment)?;
        Some(reply)
    }

    /// RELEASE REQID: the hold of a request, or its place in the queue. May be repeated.
    pub fn undo(
        &mut self,
        owner: &str,
        id: &str,
        fence: Option<u64>,
        moment: &mut Moment<'_>,
    ) -> Option<Reply> {
        let is_undone = |held: &Option<Name>| held.as_deref() == Some(id);
        let refusal = fence.and_then(|_| self.refusal(owner, fence));
        let reply = match (refusal, self.held_by(owner)) {
            (Some(error), _) => Reply::Error(error),
            (None, Some(holder)) if holder.holds.iter().any(is_undone) => {
                self.change_holds(owner, |holds| holds.retain(|held| !is_undone(held)))
            }
            (None, holder) => {
                let left = holder.map_or(0, |holder| holder.holds.len());
                self.queue.retain(|waiter| {
                    let stays = *waiter.owner != *owner || !is_undone(&waiter.id);
                    if !stays {
                        moment.told.push((waiter.call, Reply::NotGranted));
                    }
                    stays
                });
                Reply::Holds(left)
            }
        };
        self.settle(moment)?;
        Some(reply)
    }

    /// EXTEND: a longer lease for a holder.
    pub fn extend(
        &mut self,
        owner: &str,
        fence: Option<u64>,
        lease: Span,
        moment: &mut Moment<'_>,
    ) -> Option<Reply> {
        let reply = match (self.refusal(owner, fence), self.held_by(owner)) {
            (None, Some(holder)) => {
                holder.until = holder.until.later(moment.now.after(lease));
                Reply::Lease(holder.until)
            }
            (error, _) => Reply::Error(error.unwrap_or("NOTHELD")),
        };
        self.settle(moment)?;
        Some(reply)
    }

    /// A write through GUARD: checks the lock and writes in one step.
    pub fn guard(&mut self, owner: &str, fence: u64) -> Reply {
        match self.refusal(owner, Some(fence)) {
            Some(error) => Reply::Error(error),
            None => {
                self.writes += 1;
                Reply::Written(self.writes)
            }
        }
    }

    /// The first waiters are granted the lock, as far as they fit. Behind one that does not fit, only requests of owners
    /// that hold the lock now are granted.
    pub fn settle(&mut self, moment: &mut Moment<'_>) -> Option<()> {
        for waiter in std::mem::take(&mut self.queue) {
            let reply = if let Some(holder) = self.held_by(&waiter.owner) {
                reenter(holder, &waiter, moment.now)
            } else if self.queue.is_empty() && self.fits(waiter.limit) {
                self.grant(&waiter, moment)?
            } else {
                self.queue.push(waiter);
                continue;
            };
            moment.told.push((waiter.call, reply));
        }
        Some(())
    }

    /// To the end of the queue. A repeated request keeps its place, and its former connection is told.
    fn enqueue(&mut self, request: Request, moment: &mut Moment<'_>) -> Reply {
        let mut waiters = self.queue.iter_mut();
        let is_same = |waiter: &&mut Request| {
            waiter.id.is_some() && waiter.id == request.id && waiter.owner == request.owner
        };
        match waiters.find(is_same) {
            None => self.queue.push(request),
            Some(waiter) if waiter.limit != request.limit => return Reply::Error("ERR"),
            Some(waiter) => {
                moment.told.push((waiter.call, Reply::Error("UNBLOCKED")));
                *waiter = request;
            }
        }
        Reply::Waits
    }

    /// A new holder, under a fence above all earlier ones.
    fn grant(&mut self, request: &Request, moment: &Moment<'_>) -> Option<Reply> {
        let fence = match request.fence {
            Some(fence) => Some(fence).filter(|fence| *fence > self.fence),
            None => (moment.next_fence)(self.fence),
        };
        self.fence = fence?;
        let holder = Holder {
            owner: request.owner.clone(),
            fence: self.fence,
            limit: request.limit,
            until: moment.now.after(request.lease),
            holds: vec![request.id.clone()],
        };
        let reply = holder.granted();
        self.holders.push(holder);
        Some(reply)
    }

    /// The grant rule: the holders are at most as many as the smallest limit among them.
    fn fits(&self, limit: Limit) -> bool {
        let limits = self.holders.iter().map(|holder| holder.limit);
        match limits.fold(limit, Limit::min) {
            Limit::Shared => true,
            Limit::Of(smallest) => self.holders.len() < smallest as usize,
        }
    }

    fn held_by(&mut self, owner: &str) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| *holder.owner == *owner)
    }

    /// Why a request may not speak for a holder.
    fn refusal(&self, owner: &str, fence: Option<u64>) -> Option<&'static str> {
        let own = self.holders.iter().find(|holder| *holder.owner == *owner);
        match own {
            None if self.holders.is_empty() => Some("NOTHELD"),
            None => Some("NOTOWNER"),
            Some(holder) => fence.filter(|fence| *fence != holder.fence).map(|_| "STALE"),
        }
    }

    /// With its last hold, the owner gives the lock up.
    fn change_holds(&mut self, owner: &str, change: impl FnOnce(&mut Vec<Option<Name>>)) -> Reply {
        let mut left = 0;
        if let Some(holder) = self.held_by(owner) {
            change(&mut holder.holds);
            left = holder.holds.len();
        }
        self.holders.retain(|holder| !holder.holds.is_empty());
        Reply::Holds(left)
    }
}

/// One more hold for a holder, but for a request that has one already. The limit stays.
fn reenter(holder: &mut Holder, request: &Request, now: Span) -> Reply {
    if request.limit < holder.limit {
        return Reply::Error("ERR");
    }
    if request.id.is_none() || !holder.holds.contains(&request.id) {
        holder.holds.push(request.id.clone());
        holder.until = holder.until.later(now.after(request.lease));
    }
    holder.granted()
}
