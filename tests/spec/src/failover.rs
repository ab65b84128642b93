//! The failovers of the specification, and three cores: primary, replica, and the old primary that goes on.

use std::collections::{BTreeMap, VecDeque};

use dlock_core::testing::{self, Command, ORIGIN, Server};

use crate::trace::{Data, Difference, Trace, ask};

const TICK_MS: u64 = 1_000;
const TICK_MICROS: i64 = 1_000_000;
/// Of the specification. Each has a client.
const OWNERS: [&str; 2] = ["a", "b"];

/// What happens in a step.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    pub now: i64,
    pub owner: String,
    pub lease: i64,
    /// 0: none.
    pub fence: i64,
    /// The old primary gets the request.
    pub is_old: bool,
    /// There is an old primary afterwards.
    pub goes_on: bool,
}

/// What came of it. Fences are those of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reply: Reply,
    /// The owners that waited and are granted the lock, with their replies.
    pub told: Vec<(String, Reply)>,
    pub primary: Lock,
    pub replica: Lock,
    /// `None`: there is none.
    pub old: Option<Lock>,
    /// How many changes the replica lacks.
    pub behind: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted { fence: i64, lease: i64 },
    NotGranted,
    Waits,
    Released,
    Lease(i64),
    Error(String),
    NoReply,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub holder: Option<Holder>,
    /// The owners that wait, oldest first.
    pub queue: Vec<String>,
}

/// A holder whose lease has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub fence: i64,
    pub until: i64,
}

/// Replays a trace. `code` does a step, and is told the fence in the specification of the lock that it grants.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Step, Option<i64>) -> Seen) -> Result<(), Difference> {
    trace.replay(|state| {
        let specified = Seen::specified(state);
        let mut replies = specified
            .told
            .iter()
            .map(|(_, reply)| reply)
            .chain(std::iter::once(&specified.reply));
        let granted = replies.find_map(|reply| match reply {
            Reply::Granted { fence, .. } => Some(*fence),
            _ => None,
        });
        (code(&Step::of(state), granted), specified)
    })
}

impl Step {
    fn of(state: Data<'_>) -> Self {
        let last = state.var("last");
        Self {
            name: last.get("name").text().to_owned(),
            now: state.var("now").int(),
            owner: last.get("owner").text().to_owned(),
            lease: last.get("lease").int(),
            fence: last.get("fence").int(),
            is_old: last.get("isOld").bool(),
            goes_on: state.var("old").list().next().is_some(),
        }
    }
}

impl Seen {
    fn specified(state: Data<'_>) -> Self {
        let now = state.var("now").int();
        let holder = |server: Data<'_>| {
            let (began, ends) = (server.get("began").int(), server.get("ends").int());
            let holder = server.get("holders").list().next()?;
            let until = holder.get("until").int();
            let until = if until > began { until.max(ends) } else { until };
            (until > now).then(|| Holder {
                owner: holder.get("owner").text().to_owned(),
                fence: holder.get("fence").int(),
                until,
            })
        };
        let owner = |it: Data<'_>| it.get("owner").text().to_owned();
        let lock = |server: Data<'_>| Lock {
            holder: holder(server),
            queue: server.get("queue").list().map(owner).collect(),
        };
        let outcome = state.var("last").get("outcome");
        let told = outcome.get("told").list();
        Self {
            reply: Reply::specified(outcome.get("reply")),
            told: told.map(|grant| (owner(grant), Reply::granted(grant))).collect(),
            primary: lock(state.var("primary")),
            replica: lock(state.var("replica")),
            old: state.var("old").list().next().map(lock),
            behind: state.var("stream").list().count(),
        }
    }
}

impl Reply {
    fn specified(reply: Data<'_>) -> Self {
        let (tag, value) = reply.variant();
        match tag {
            "Granted" => Self::granted(value),
            "NotGranted" => Self::NotGranted,
            "Waits" => Self::Waits,
            "Released" => Self::Released,
            "Lease" => Self::Lease(value.int()),
            "Error" => Self::Error(value.text().to_owned()),
            "NoReply" => Self::NoReply,
            _ => panic!("an unknown reply: {tag}"),
        }
    }

    fn granted(grant: Data<'_>) -> Self {
        Self::Granted {
            fence: grant.get("fence").int(),
            lease: grant.get("lease").int(),
        }
    }
}

/// The cores. `GRACE` and the longest lease are those of the specification.
pub struct Cores {
    grace_ms: u64,
    primary: Server,
    replica: Server,
    old: Option<Server>,
    stream: VecDeque<Command>,
    /// Fences of the specification, and what they are in the core: in the same order.
    fences: BTreeMap<i64, u64>,
}

impl Cores {
    pub fn new(grace_ticks: u64) -> Self {
        let mut primary = Server::with(&["lock"]);
        set_policy(&mut primary);
        // The replica knows a fence: otherwise a promotion in the millisecond of the start repeats the first ones.
        for command in ["ACQUIRE before 1000", "RELEASE before"] {
            ask(&mut primary, 0, command);
        }
        primary.take_sent();
        Self {
            grace_ms: grace_ticks * TICK_MS,
            replica: Self::replica_of(&primary),
            primary,
            old: None,
            stream: VecDeque::new(),
            fences: BTreeMap::new(),
        }
    }

    fn replica_of(primary: &Server) -> Server {
        let mut replica = Server::load(&primary.save(), primary.now(), ORIGIN);
        set_policy(&mut replica);
        replica
    }

    pub fn step(&mut self, step: &Step, granted: Option<i64>) -> Seen {
        let servers = [
            Some(&mut self.primary),
            Some(&mut self.replica),
            self.old.as_mut(),
        ];
        for server in servers.into_iter().flatten() {
            server.set_now(step.now * TICK_MICROS);
        }
        let reply = self.perform(step, granted);
        let told = self.server(step).take_replies().into_iter();
        let told = told.map(|(client, reply)| (OWNERS[client].to_owned(), self.reply(reply, granted)));
        Seen {
            reply,
            told: told.collect(),
            primary: self.lock(&self.primary),
            replica: self.lock(&self.replica),
            old: self.old.as_ref().map(|old| self.lock(old)),
            behind: self.stream.len(),
        }
    }

    fn perform(&mut self, step: &Step, granted: Option<i64>) -> Reply {
        let owner = &step.owner;
        let fence = match step.fence {
            0 => String::new(),
            number => format!(" FENCE {}", self.fences[&number]),
        };
        let lease_ms = step.lease as u64 * TICK_MS;
        let command = match &*step.name {
            "acquire" => format!("ACQUIRE {owner} {lease_ms}"),
            "wait" => format!("ACQUIRE {owner} {lease_ms} BLOCK 0"),
            "extend" => format!("EXTEND {owner} {lease_ms}{fence}"),
            "release" => format!("RELEASE {owner}{fence} ALL"),
            "replicate" => {
                let command = self.stream.pop_front().expect("the specification has sent it");
                self.replica.receive(0, &command);
                return Reply::NoReply;
            }
            "failover" => {
                self.replica.promote(self.grace_ms);
                let replica = Self::replica_of(&self.replica);
                let promoted = std::mem::replace(&mut self.replica, replica);
                let old = std::mem::replace(&mut self.primary, promoted);
                self.old = step.goes_on.then_some(old);
                self.stream.clear();
                return Reply::NoReply;
            }
            "timer" => {
                self.server(step).on_timer(0);
                self.send(step);
                return Reply::NoReply;
            }
            "tick" => return Reply::NoReply,
            other => panic!("an unknown action: {other}"),
        };
        let client = OWNERS.iter().position(|owner| *owner == step.owner);
        let reply = ask(self.server(step), client.expect("an owner"), &command);
        self.send(step);
        reply.map_or(Reply::Waits, |reply| self.reply(reply, granted))
    }

    /// The server that this step is about.
    fn server(&mut self, step: &Step) -> &mut Server {
        match &mut self.old {
            Some(old) if step.is_old => old,
            _ => &mut self.primary,
        }
    }

    fn send(&mut self, step: &Step) {
        let sent = self.server(step).take_sent().into_iter().map(|sent| sent.command);
        if !step.is_old {
            self.stream.extend(sent);
        }
    }

    fn reply(&mut self, reply: testing::Reply, specified: Option<i64>) -> Reply {
        match reply {
            Ok(testing::Answer::Granted(granted)) => {
                let fence = self.number(granted.fence).or(specified).unwrap_or_default();
                self.fences.insert(fence, granted.fence);
                if !self.fences.values().is_sorted_by(|a, b| a < b) {
                    return Reply::Error(format!("fences in another order: {:?}", self.fences));
                }
                Reply::Granted {
                    fence,
                    lease: (granted.lease_ms / TICK_MS) as i64,
                }
            }
            Ok(testing::Answer::NotGranted) => Reply::NotGranted,
            Ok(testing::Answer::Holds(0)) => Reply::Released,
            Ok(testing::Answer::Lease(left_ms)) => Reply::Lease((left_ms / TICK_MS) as i64),
            Ok(other) => panic!("an unexpected answer: {other:?}"),
            Err(error) => Reply::Error(error.code().to_owned()),
        }
    }

    fn number(&self, fence: u64) -> Option<i64> {
        let mut fences = self.fences.iter();
        fences.find(|(_, own)| **own == fence).map(|(number, _)| *number)
    }

    fn lock(&self, server: &Server) -> Lock {
        let view = server.view(0);
        let text = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
        let holder = view.holders.first().map(|holder| Holder {
            owner: text(holder.owner),
            fence: self.number(holder.fence).unwrap_or_default(),
            until: server.lease_ends(0)[0] / TICK_MICROS,
        });
        Lock {
            holder,
            queue: view
                .queue
                .iter()
                .map(|waiter| text(waiter.request.owner))
                .collect(),
        }
    }
}

fn set_policy(server: &mut Server) {
    server.set_policy(|policy| {
        policy.is_quorum = false;
        // A holder waits for its own lock in a grace period.
        policy.detect_deadlocks = false;
    });
}
