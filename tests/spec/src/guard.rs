//! GUARD in the specification, and cores: every state of the server that goes on, and the one that is isolated.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::Guard;
use dlock_core::testing::{Answer, Micros, ORIGIN, Saved, Server};

use crate::trace::{Data, Difference, LEASE_MS, Trace, ask};

const LATER_MICROS: Micros = 1_000_000;

/// What a client was granted, under the fence of the specification.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub owner: String,
    pub fence: i64,
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    /// The server that was replaced gets the request.
    pub is_isolated: bool,
    /// Who acquires, or with what a GUARD is sent.
    pub grant: Grant,
    /// The state that a failover goes back to.
    pub at: usize,
    /// All grants so far, with those of this step.
    pub granted: BTreeSet<Grant>,
}

/// What came of it. The writes are those that a GUARD let pass, by the fences of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub server: Checked,
    /// `None`: there is none.
    pub isolated: Option<Checked>,
}

/// A server as GUARD sees it: which of all grants it lets pass, and what they have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub passing: BTreeSet<Grant>,
    pub writes: Vec<i64>,
}

/// Replays a trace. `code` does a step, and is told the fence of a grant in the specification.
///
/// Two servers that were promoted from one state may grant the same fence in the specification. Those of the module differ
/// by random bits and by their clocks: what follows in such a trace is left out.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Step, Option<i64>) -> Seen) -> Result<(), Difference> {
    let mut granted_before = BTreeSet::new();
    let mut is_over = false;
    trace.replay(|state| {
        let step = Step::of(state);
        let [server, isolated] = ["history", "isolated"].map(|name| state.var(name).list().last());
        let changed = if step.is_isolated { isolated } else { server };
        let new = changed.and_then(|server| server.get("holders").list().last());
        let new = new.map(Grant::of);
        is_over |= step.name == "acquire" && new.as_ref().is_some_and(|new| granted_before.contains(new));
        if is_over {
            return (None, None);
        }
        granted_before.clone_from(&step.granted);
        let specified = Seen {
            server: Checked::specified(server.expect("a server")),
            isolated: isolated.map(Checked::specified),
        };
        (Some(code(&step, new.map(|new| new.fence))), Some(specified))
    })
}

impl Step {
    fn of(state: Data<'_>) -> Self {
        let last = state.var("last");
        Self {
            name: last.get("name").text().to_owned(),
            is_isolated: last.get("isIsolated").bool(),
            grant: Grant::of(last.get("grant")),
            at: last.get("at").int() as usize,
            granted: state.var("granted").set().map(Grant::of).collect(),
        }
    }
}

impl Grant {
    fn of(grant: Data<'_>) -> Self {
        Self {
            owner: grant.get("owner").text().to_owned(),
            fence: grant.get("fence").int(),
        }
    }
}

impl Checked {
    fn specified(server: Data<'_>) -> Self {
        Self {
            passing: server.get("holders").list().map(Grant::of).collect(),
            writes: server.get("writes").list().map(Data::int).collect(),
        }
    }
}

/// The core as the servers of one lock, and their data.
pub struct Cores {
    server: Guarded,
    isolated: Option<Guarded>,
    /// What was replicated after each step of the server that goes on: lock and data, in one stream.
    history: Vec<(Saved, Vec<i64>)>,
    /// The fence of each grant in the core.
    fences: BTreeMap<Grant, u64>,
    /// Whether a GUARD looks at the fence.
    checks_fence: bool,
}

struct Guarded {
    core: Server,
    writes: Vec<i64>,
}

impl Cores {
    /// `checks_fence`: false breaks GUARD on purpose.
    pub fn new(checks_fence: bool) -> Self {
        let core = Server::with(&["lock"]);
        Self {
            history: vec![(core.save(), vec![])],
            server: Guarded { core, writes: vec![] },
            isolated: None,
            fences: BTreeMap::new(),
            checks_fence,
        }
    }

    pub fn step(&mut self, step: &Step, fence: Option<i64>) -> Seen {
        if step.name == "failover" {
            self.fail_over(step.at);
        } else {
            self.ask(step, fence);
        }
        Seen {
            server: self.checked(&self.server, &step.granted),
            isolated: self
                .isolated
                .as_ref()
                .map(|server| self.checked(server, &step.granted)),
        }
    }

    fn ask(&mut self, step: &Step, fence: Option<i64>) {
        let server = match step.is_isolated {
            true => self.isolated.as_mut().expect("an isolated server"),
            false => &mut self.server,
        };
        match &*step.name {
            "acquire" => {
                let core_fence = server.acquire(&step.grant.owner);
                let fence = fence.expect("a holder");
                let owner = step.grant.owner.clone();
                self.fences.insert(Grant { owner, fence }, core_fence);
            }
            "end" => server.end(),
            "guard" => {
                let core_fence = self.fences[&step.grant];
                if server.passes(&step.grant, core_fence, self.checks_fence) {
                    server.writes.push(step.grant.fence);
                }
            }
            other => panic!("an unknown action: {other}"),
        }
        if !step.is_isolated {
            self.history
                .push((self.server.core.save(), self.server.writes.clone()));
        }
    }

    /// A replica that has what the server had then is promoted, some time later: one that knows no fence yet goes by its
    /// clock. There is no grace period: GUARD needs none.
    fn fail_over(&mut self, at: usize) {
        self.history.truncate(at + 1);
        let (saved, writes) = &self.history[at];
        let mut core = Server::load(saved, self.server.core.now() + LATER_MICROS, ORIGIN);
        core.promote(0);
        let writes = writes.clone();
        let replaced = std::mem::replace(&mut self.server, Guarded { core, writes });
        self.isolated = Some(replaced);
        self.history
            .push((self.server.core.save(), self.server.writes.clone()));
    }

    fn checked(&self, server: &Guarded, granted: &BTreeSet<Grant>) -> Checked {
        let passes = |grant: &&Grant| {
            let fence = self.fences.get(grant);
            fence.is_some_and(|fence| server.passes(grant, *fence, self.checks_fence))
        };
        Checked {
            passing: granted.iter().filter(passes).cloned().collect(),
            writes: server.writes.clone(),
        }
    }
}

impl Guarded {
    fn acquire(&mut self, owner: &str) -> u64 {
        match ask(&mut self.core, 0, &format!("ACQUIRE {owner} {LEASE_MS}")) {
            Some(Ok(Answer::Granted(granted))) => granted.fence,
            other => panic!("{owner}: {other:?}"),
        }
    }

    fn end(&mut self) {
        let holders = self.core.stored(0);
        let (holder, _) = holders.first().expect("a holder");
        let owner = String::from_utf8_lossy(holder.owner()).into_owned();
        let released = ask(&mut self.core, 0, &format!("RELEASE {owner} ALL"));
        assert_eq!(released, Some(Ok(Answer::Holds(0))));
    }

    fn passes(&self, grant: &Grant, fence: u64, checks_fence: bool) -> bool {
        let owner = grant.owner.as_bytes();
        let holders = self.core.stored(0);
        let fence = match holders.iter().find(|(holder, _)| holder.owner() == owner) {
            Some((holder, _)) if !checks_fence => holder.fence(),
            _ => fence,
        };
        self.core.guard(0, &Guard { owner, fence }).is_ok()
    }
}
