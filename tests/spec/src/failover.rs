//! The failovers of the specification, and three cores: primary, replica, and the old primary that goes on.

use std::collections::{BTreeMap, VecDeque};

use dlock_core::testing::{self, Command, ORIGIN, Server};

use crate::trace::{Data, Difference, Trace, ask};

const TICK_MS: u64 = 1_000;
const TICK_MICROS: i64 = 1_000_000;

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
    pub primary: Option<Holder>,
    pub replica: Option<Holder>,
    /// `None`: there is none.
    pub old: Option<Option<Holder>>,
    /// How many changes the replica lacks.
    pub behind: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted { fence: i64, lease: i64 },
    NotGranted,
    Released,
    Lease(i64),
    Error(String),
    NoReply,
}

/// A holder whose lease has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub fence: i64,
    pub until: i64,
}

/// Replays a trace. `code` does a step, and is told the fence of a grant in the specification.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Step, Option<i64>) -> Seen) -> Result<(), Difference> {
    trace.replay(|state| {
        let specified = Seen::specified(state);
        let granted = match specified.reply {
            Reply::Granted { fence, .. } => Some(fence),
            _ => None,
        };
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
        Self {
            reply: Reply::specified(state.var("last").get("reply")),
            primary: holder(state.var("primary")),
            replica: holder(state.var("replica")),
            old: state.var("old").list().next().map(holder),
            behind: state.var("stream").list().count(),
        }
    }
}

impl Reply {
    fn specified(reply: Data<'_>) -> Self {
        let (tag, value) = reply.variant();
        match tag {
            "Granted" => Self::Granted {
                fence: value.get("fence").int(),
                lease: value.get("lease").int(),
            },
            "NotGranted" => Self::NotGranted,
            "Released" => Self::Released,
            "Lease" => Self::Lease(value.int()),
            "Error" => Self::Error(value.text().to_owned()),
            "NoReply" => Self::NoReply,
            _ => panic!("an unknown reply: {tag}"),
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
        primary.set_policy(|policy| policy.is_quorum = false);
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
        replica.set_policy(|policy| policy.is_quorum = false);
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
        Seen {
            reply,
            primary: self.holder(&self.primary),
            replica: self.holder(&self.replica),
            old: self.old.as_ref().map(|old| self.holder(old)),
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
            "tick" => return Reply::NoReply,
            other => panic!("an unknown action: {other}"),
        };
        let server = match &mut self.old {
            Some(old) if step.is_old => old,
            _ => &mut self.primary,
        };
        let reply = ask(server, 0, &command).expect("nobody waits");
        let sent = server.take_sent().into_iter().map(|sent| sent.command);
        if !step.is_old {
            self.stream.extend(sent);
        }
        self.reply(reply, granted)
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

    fn holder(&self, server: &Server) -> Option<Holder> {
        let view = server.view(0);
        let holder = view.holders.first()?;
        Some(Holder {
            owner: String::from_utf8_lossy(holder.owner).into_owned(),
            fence: self.number(holder.fence).unwrap_or_default(),
            until: server.lease_ends(0)[0] / TICK_MICROS,
        })
    }
}
