//! The rules as the drill has them, to search for runs of the specification.

use std::collections::BTreeMap;

use dlock_drill::history::{Limit, Micros};
use dlock_drill::specification::lock::{Lock, Moment, Name, Reply as ModelReply, Request, Span};

use crate::lock::{Holder, Reply, SHARED, Seen, Step, Waiter};

const TICK_MICROS: Micros = 1_000_000;

/// A lock of the drill, as the only one of a server.
#[derive(Default)]
pub struct Model {
    lock: Lock,
    /// When waiters give up, by their calls.
    deadlines: BTreeMap<usize, i64>,
}

impl Model {
    pub fn step(&mut self, step: &Step) -> Seen {
        let mut moment = Moment {
            now: span(step.now),
            next_fence: Box::new(|last| Some(last + 1)),
            told: Vec::new(),
        };
        if !matches!(&*step.name, "tick" | "leave") {
            self.end_what_is_over(step.now, &mut moment);
        }
        let reply = self.perform(step, &mut moment);
        let told = moment.told.into_iter();
        Seen {
            reply,
            told: told.map(|(call, reply)| (call, seen(reply, step.now))).collect(),
            holders: self.holders(step.now),
            queue: self.queue(),
        }
    }

    /// In the drill, the end of a lease and that of a wait are steps of their own.
    fn end_what_is_over(&mut self, now: i64, moment: &mut Moment<'_>) {
        self.lock.holders.retain(|holder| ticks(holder.until) > now);
        let deadlines = &self.deadlines;
        self.lock.queue.retain(|waiter| {
            let waits = deadlines[&waiter.call] > now;
            if !waits {
                moment.told.push((waiter.call, ModelReply::NotGranted));
            }
            waits
        });
    }

    fn perform(&mut self, step: &Step, moment: &mut Moment<'_>) -> Reply {
        let fence = (step.fence != 0).then_some(step.fence as u64);
        let (lock, owner) = (&mut self.lock, &*step.owner);
        let reply = match &*step.name {
            "acquire" => {
                self.deadlines.insert(step.call, step.now + step.wait);
                lock.acquire(request(step), step.wait > 0, moment)
            }
            "release" => lock.release(owner, fence, false, moment),
            "undo" => lock.undo(owner, &step.id, None, moment),
            "extend" => lock.extend(owner, fence, span(step.lease), moment),
            "timer" => {
                let settled = lock.settle(moment);
                settled.expect("there is always a next fence");
                return Reply::NoReply;
            }
            "leave" => {
                lock.queue.retain(|waiter| waiter.call != step.call);
                return Reply::NoReply;
            }
            "tick" => return Reply::NoReply,
            other => panic!("an unknown action: {other}"),
        };
        seen(reply.expect("there is always a next fence"), step.now)
    }

    fn holders(&self, now: i64) -> Vec<Holder> {
        let holders = self.lock.holders.iter();
        let live = holders.filter(|holder| ticks(holder.until) > now);
        live.map(|holder| Holder {
            owner: holder.owner.to_string(),
            fence: holder.fence as i64,
            limit: number(holder.limit),
            until: ticks(holder.until),
            plain: holder.holds.iter().filter(|id| id.is_none()).count(),
            ids: holder.holds.iter().flatten().map(ToString::to_string).collect(),
        })
        .collect()
    }

    fn queue(&self) -> Vec<Waiter> {
        let waiters = self.lock.queue.iter().map(|waiter| Waiter {
            call: waiter.call,
            owner: waiter.owner.to_string(),
            id: waiter.id.as_deref().unwrap_or_default().to_owned(),
            limit: number(waiter.limit),
            lease: ticks(waiter.lease),
            until: self.deadlines[&waiter.call],
        });
        waiters.collect()
    }
}

fn request(step: &Step) -> Request {
    Request {
        call: step.call,
        owner: Name::from(&*step.owner),
        id: (!step.id.is_empty()).then(|| Name::from(&*step.id)),
        limit: match step.limit {
            SHARED => Limit::Shared,
            n => Limit::Of(n as u32),
        },
        lease: span(step.lease),
        fence: None,
    }
}

fn seen(reply: ModelReply, now: i64) -> Reply {
    match reply {
        ModelReply::Granted { fence, holds, until } => Reply::Granted {
            fence: fence as i64,
            holds: holds as i64,
            lease: ticks(until) - now,
        },
        ModelReply::NotGranted => Reply::NotGranted,
        ModelReply::Waits => Reply::Waits,
        ModelReply::Holds(left) => Reply::Holds(left as i64),
        ModelReply::Lease(until) => Reply::Lease(ticks(until) - now),
        ModelReply::Error(word) => Reply::Error(word.to_owned()),
        ModelReply::Written(_) => panic!("GUARD has a page of its own"),
    }
}

fn number(limit: Limit) -> i64 {
    match limit {
        Limit::Shared => SHARED,
        Limit::Of(n) => n.into(),
    }
}

fn span(ticks: i64) -> Span {
    let micros = ticks as Micros * TICK_MICROS;
    Span {
        from: micros,
        to: micros,
    }
}

fn ticks(span: Span) -> i64 {
    (span.from / TICK_MICROS) as i64
}
