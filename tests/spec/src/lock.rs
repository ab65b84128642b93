//! The lock of the specification, and the core.

use std::collections::BTreeMap;

use dlock_core::Limit;
use dlock_core::testing::{self, Server};

use crate::trace::{Data, Difference, Trace, ask};

const TICK_MS: u64 = 1_000;
const TICK_MICROS: i64 = 1_000_000;
/// The specification's number for no limit.
pub(crate) const SHARED: i64 = 99;

/// What happens in a step.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    pub now: i64,
    pub owner: String,
    /// Empty: none.
    pub id: String,
    pub limit: i64,
    pub lease: i64,
    /// How long the request waits.
    pub wait: i64,
    pub call: usize,
    /// 0: none.
    pub fence: i64,
}

/// What came of it, as it can be seen from outside. The first fence is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reply: Reply,
    /// The replies to waiters, by their calls.
    pub told: BTreeMap<usize, Reply>,
    pub holders: Vec<Holder>,
    pub queue: Vec<Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted { fence: i64, holds: i64, lease: i64 },
    NotGranted,
    Waits,
    Holds(i64),
    Lease(i64),
    Error(String),
    NoReply,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub fence: i64,
    pub limit: i64,
    pub until: i64,
    /// Holds without a request id, and the request ids of the others, oldest first.
    pub plain: usize,
    pub ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub call: usize,
    pub owner: String,
    pub id: String,
    pub limit: i64,
    pub lease: i64,
    pub until: i64,
}

/// Replays a trace. `code` does a step.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Step) -> Seen) -> Result<(), Difference> {
    trace.replay(|state| (code(&Step::of(state)), Seen::specified(state)))
}

impl Step {
    /// Time passes, and nothing else happens.
    pub fn nothing(now: i64) -> Self {
        Self {
            name: "tick".to_owned(),
            now,
            owner: String::new(),
            id: String::new(),
            limit: 1,
            lease: 0,
            wait: 0,
            call: 0,
            fence: 0,
        }
    }

    fn of(state: Data<'_>) -> Self {
        let (last, now) = (state.var("last"), state.var("now").int());
        let request = last.get("request");
        Self {
            name: last.get("name").text().to_owned(),
            now,
            owner: request.get("owner").text().to_owned(),
            id: request.get("id").text().to_owned(),
            limit: request.get("limit").int(),
            lease: request.get("lease").int(),
            wait: request.get("until").int() - now,
            call: request.get("call").int() as usize,
            fence: last.get("fence").int(),
        }
    }
}

impl Seen {
    fn specified(state: Data<'_>) -> Self {
        let (lock, now) = (state.var("lock"), state.var("now").int());
        let outcome = state.var("last").get("outcome");
        let told = outcome.get("told").list();
        let holders = lock.get("holders").list().map(Holder::specified);
        Self {
            reply: Reply::specified(outcome.get("reply")),
            told: told
                .map(|told| {
                    (
                        told.get("call").int() as usize,
                        Reply::specified(told.get("reply")),
                    )
                })
                .collect(),
            // An expired lease never counts.
            holders: holders.filter(|holder| holder.until > now).collect(),
            queue: lock.get("queue").list().map(Waiter::specified).collect(),
        }
    }
}

impl Reply {
    fn specified(reply: Data<'_>) -> Self {
        let (tag, value) = reply.variant();
        match tag {
            "Granted" => Self::Granted {
                fence: value.get("fence").int(),
                holds: value.get("holds").int(),
                lease: value.get("lease").int(),
            },
            "NotGranted" => Self::NotGranted,
            "Waits" => Self::Waits,
            "Holds" => Self::Holds(value.int()),
            "Lease" => Self::Lease(value.int()),
            "Error" => Self::Error(value.text().to_owned()),
            "NoReply" => Self::NoReply,
            _ => panic!("an unknown reply: {tag}"),
        }
    }
}

impl Holder {
    fn specified(holder: Data<'_>) -> Self {
        let (ids, plain): (Vec<&str>, Vec<&str>) = holder
            .get("holds")
            .list()
            .map(Data::text)
            .partition(|id| !id.is_empty());
        Self {
            owner: holder.get("owner").text().to_owned(),
            fence: holder.get("fence").int(),
            limit: holder.get("limit").int(),
            until: holder.get("until").int(),
            plain: plain.len(),
            ids: ids.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl Waiter {
    fn specified(waiter: Data<'_>) -> Self {
        Self {
            call: waiter.get("call").int() as usize,
            owner: waiter.get("owner").text().to_owned(),
            id: waiter.get("id").text().to_owned(),
            limit: waiter.get("limit").int(),
            lease: waiter.get("lease").int(),
            until: waiter.get("until").int(),
        }
    }
}

/// The core as the server of one lock.
pub struct Core {
    server: Server,
    fences: Fences,
}

/// Numbers fences as the specification does.
#[derive(Default)]
struct Fences {
    /// The one before the first, once there is one.
    before: Option<u64>,
}

impl Fences {
    fn numbered(&mut self, fence: u64) -> i64 {
        let before = *self.before.get_or_insert(fence - 1);
        fence as i64 - before as i64
    }

    fn of_core(&self, number: i64) -> u64 {
        self.before.unwrap_or_default() + number as u64
    }
}

impl Core {
    #[allow(clippy::new_without_default, reason = "it is no plain value")]
    pub fn new() -> Self {
        let mut server = Server::with(&["lock"]);
        // One owner may wait twice in the specification, which has no deadlocks.
        server.set_policy(|policy| policy.detect_deadlocks = false);
        Self {
            server,
            fences: Fences::default(),
        }
    }

    pub fn step(&mut self, step: &Step) -> Seen {
        self.server.set_now(step.now * TICK_MICROS);
        let reply = self.perform(step);
        let told = self.server.take_replies();
        let told = told.into_iter().map(|(call, reply)| (call, self.reply(reply)));
        let told = told.collect::<Vec<_>>().into_iter().collect();
        Seen {
            reply,
            told,
            holders: self.holders(step.now),
            queue: self.queue(),
        }
    }

    fn perform(&mut self, step: &Step) -> Reply {
        let (owner, lease_ms) = (&step.owner, step.lease as u64 * TICK_MS);
        let option = |is_given: bool, text: String| if is_given { text } else { String::new() };
        let fence = option(
            step.fence != 0,
            format!(" FENCE {}", self.fences.of_core(step.fence)),
        );
        let id = option(!step.id.is_empty(), format!(" REQID {}", step.id));
        let command = match &*step.name {
            "acquire" => {
                let limit = match step.limit {
                    SHARED => "SHARED".to_owned(),
                    n => format!("LIMIT {n}"),
                };
                let wait = option(step.wait > 0, format!(" BLOCK {}", step.wait * TICK_MS as i64));
                format!("ACQUIRE {owner} {lease_ms} {limit}{wait}{id}")
            }
            "release" => format!("RELEASE {owner}{fence}"),
            "undo" => format!("RELEASE {owner}{id}"),
            "extend" => format!("EXTEND {owner} {lease_ms}{fence}"),
            "timer" => {
                self.server.on_timer(0);
                return Reply::NoReply;
            }
            "leave" => {
                self.server.disconnect(step.call);
                return Reply::NoReply;
            }
            "tick" => return Reply::NoReply,
            other => panic!("an unknown action: {other}"),
        };
        match ask(&mut self.server, step.call, &command) {
            Some(reply) => self.reply(reply),
            None => Reply::Waits,
        }
    }

    fn reply(&mut self, reply: testing::Reply) -> Reply {
        match reply {
            Ok(testing::Answer::Granted(granted)) => Reply::Granted {
                fence: self.fences.numbered(granted.fence),
                holds: granted.holds as i64,
                lease: (granted.lease_ms / TICK_MS) as i64,
            },
            Ok(testing::Answer::NotGranted) => Reply::NotGranted,
            Ok(testing::Answer::Holds(left)) => Reply::Holds(left as i64),
            Ok(testing::Answer::Lease(left_ms)) => Reply::Lease((left_ms / TICK_MS) as i64),
            Ok(other) => panic!("an unexpected answer: {other:?}"),
            Err(error) => Reply::Error(error.code().to_owned()),
        }
    }

    fn holders(&mut self, now: i64) -> Vec<Holder> {
        let Self { server, fences } = self;
        let holders = server.view(0).holders.into_iter();
        let holders = holders.map(|holder| Holder {
            owner: text(holder.owner),
            fence: fences.numbered(holder.fence),
            limit: number(holder.limit),
            until: now + (holder.lease_ms / TICK_MS) as i64,
            plain: holder.anonymous,
            ids: holder.ids.iter().map(|id| text(id)).collect(),
        });
        holders.collect()
    }

    fn queue(&self) -> Vec<Waiter> {
        let waiters = self.server.view(0).queue.into_iter();
        let waiters = waiters.map(|waiter| Waiter {
            call: waiter.client,
            owner: text(waiter.request.owner),
            id: waiter.request.request_id.map(text).unwrap_or_default(),
            limit: number(waiter.request.limit),
            lease: (waiter.request.lease_ms / TICK_MS) as i64,
            until: waiter.deadline().expect("all waiters have timeouts") / TICK_MICROS,
        });
        waiters.collect()
    }
}

fn number(limit: Limit) -> i64 {
    limit.get().map_or(SHARED, i64::from)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
