//! One acquisition on several servers, without I/O, clock or randomness: what is to be done about what is learnt. Pure.
//!
//! ```text
//!              a majority granted under one fence
//!   Attempt ------------------------------------------> Over, handed out
//!      |  others hold it                                  ^
//!      v                                                  |
//!   Doorway ---- passed ----> Queue ----------------------+
//!      ^                        |  some servers, no majority, and nobody else has one
//!      +------------------------+
//! ```
//!
//! Fences: those of the grants nearly always agree, because all were asked for the same one at least. Where they do not,
//! the smaller ones are raised. Only a fence that a majority has replied is handed out: a later majority shares a server
//! with that one, and is granted a larger fence there.

use crate::majority::Majority;

/// What is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The server has granted the lock under this fence; 0: shared.
    Granted(usize, u64),
    /// Others hold the lock there.
    Refused(usize),
    /// The server accepts no such fence: its clock was set back.
    TooLarge(usize),
    /// It is down, or rejects the request.
    Failed(usize),
    /// The fence there is raised to this.
    Raised(usize, u64),
    /// It stays as it was.
    RaiseRejected(usize),
    /// What was granted does not count any more.
    Lost(usize),
    /// The other replies have taken too long.
    PatienceOver,
    /// This client is in the doorway, under this fence.
    InDoorway(u64),
    /// Some servers, and for too long no majority, which nobody else has either.
    Split,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// ACQUIRE, with at least this fence, to wait in the queue or not.
    Ask {
        server: usize,
        queues: bool,
        min_fence: u64,
    },
    /// RELEASE, whatever was granted and whatever is still under way.
    GiveBack(usize),
    /// EXTEND with this fence.
    Raise(usize, u64),
    /// Says [`Input::PatienceOver`] soon.
    StartPatience,
    /// Says [`Input::InDoorway`] when the doorway is passed; `leave` it when the requests that follow are sent.
    EnterDoorway,
    HandOut(u64),
    /// Others hold the lock, or are about to: who does not wait for long ends here.
    Busy {
        /// Whether nobody may hold it: the votes may be split.
        may_be_split: bool,
    },
    TooFew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Not asked, or given back.
    Away,
    Asked,
    /// Asked again, without a fence, after [`Input::TooLarge`].
    AskedAnyFence,
    Refused,
    Down,
    /// Under a fence that no raise takes beyond `most`.
    Held {
        fence: u64,
        most: u64,
    },
    Raising {
        from: u64,
        to: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Attempt,
    Doorway,
    Queue,
    Over,
}

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    majority: Majority,
    is_exclusive: bool,
    phase: Phase,
    /// The smallest fence to ask for.
    min_fence: u64,
    patience: Patience,
    servers: Vec<At>,
}

/// For replies that may make a raise needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Patience {
    Full,
    Running,
    Over,
}

impl Acquisition {
    pub fn new(servers: usize, is_exclusive: bool, min_fence: u64) -> Self {
        Self {
            majority: Majority::of(servers),
            is_exclusive,
            phase: Phase::Over,
            min_fence,
            patience: Patience::Full,
            servers: vec![At::Away; servers],
        }
    }

    /// Asks all servers that may be up at once, and does not wait in their queues.
    pub fn attempt(&mut self, may_be_up: impl Fn(usize) -> bool) -> Vec<Output> {
        self.phase = Phase::Attempt;
        self.ask_all(false, may_be_up)
    }

    /// Waits in the queues of all servers, in the order in which the doorway is passed.
    pub fn queue(&mut self) -> Vec<Output> {
        let mut outputs = self.give_all_back();
        self.phase = Phase::Doorway;
        outputs.push(Output::EnterDoorway);
        outputs
    }

    pub fn on(&mut self, input: Input) -> Vec<Output> {
        if self.phase == Phase::Over {
            return vec![];
        }
        match input {
            Input::Granted(server, fence) => self.set(server, At::held(fence)),
            Input::Refused(server) => self.set(server, At::Refused),
            Input::TooLarge(server) => return self.ask_for_any_fence(server),
            Input::Failed(server) => self.set(server, At::Down),
            Input::Raised(server, to) => {
                if matches!(self.at(server), At::Raising { .. }) {
                    self.set(server, At::held(to));
                }
            }
            Input::RaiseRejected(server) => {
                if let At::Raising { from: fence, to } = self.at(server) {
                    let most = to - 1;
                    self.set(server, At::Held { fence, most });
                }
            }
            Input::Lost(server) => return self.on_lost(server),
            Input::PatienceOver => self.patience = Patience::Over,
            Input::InDoorway(fence) if self.phase == Phase::Doorway => {
                self.phase = Phase::Queue;
                self.min_fence = self.min_fence.max(fence);
                return self.ask_all(true, |_| true);
            }
            Input::InDoorway(_) => return vec![],
            Input::Split => return self.queue(),
        }
        self.decide()
    }

    /// Gives up everything, whatever was granted and whatever is still under way.
    pub fn end(&mut self) -> Vec<Output> {
        self.phase = Phase::Over;
        self.give_all_back()
    }

    pub fn is_in_doorway(&self) -> bool {
        self.phase == Phase::Doorway
    }

    /// Whether some servers have granted the lock.
    pub fn has_grants(&self) -> bool {
        self.grants() > 0
    }

    /// How many servers have.
    pub fn grants(&self) -> usize {
        self.count(|at| at.fences().is_some())
    }

    fn ask_all(&mut self, queues: bool, may_be_up: impl Fn(usize) -> bool) -> Vec<Output> {
        let mut outputs = vec![];
        self.patience = Patience::Full;
        for server in 0..self.servers.len() {
            if may_be_up(server) {
                self.set(server, At::Asked);
                outputs.push(self.ask(server, queues, self.min_fence));
            } else {
                self.set(server, At::Down);
            }
        }
        outputs.extend(self.decide());
        outputs
    }

    fn ask(&self, server: usize, queues: bool, min_fence: u64) -> Output {
        Output::Ask {
            server,
            queues,
            min_fence: if self.is_exclusive { min_fence } else { 0 },
        }
    }

    fn ask_for_any_fence(&mut self, server: usize) -> Vec<Output> {
        if self.at(server) != At::Asked || !self.is_exclusive {
            self.set(server, At::Down);
            return self.decide();
        }
        self.set(server, At::AskedAnyFence);
        vec![self.ask(server, self.phase == Phase::Queue, 1)]
    }

    /// In a queue it is asked again; an attempt is too short for that.
    fn on_lost(&mut self, server: usize) -> Vec<Output> {
        if self.phase == Phase::Queue {
            self.set(server, At::Asked);
            return vec![Output::GiveBack(server), self.ask(server, true, self.min_fence)];
        }
        self.set(server, At::Down);
        let mut outputs = vec![Output::GiveBack(server)];
        outputs.extend(self.decide());
        outputs
    }

    fn give_all_back(&mut self) -> Vec<Output> {
        let asked = (0..self.servers.len()).filter(|server| self.at(*server) != At::Away);
        let outputs = asked.map(Output::GiveBack).collect();
        self.servers.fill(At::Away);
        outputs
    }

    fn decide(&mut self) -> Vec<Output> {
        let held = self.grants();
        if held >= self.majority.needed() {
            if let Some(fence) = self.confirmed() {
                self.phase = Phase::Over;
                return vec![Output::HandOut(fence)];
            }
            let is_missing = self.count(|at| matches!(at, At::Asked | At::AskedAnyFence)) > 0;
            match self.patience {
                // A reply that is to come may make a raise needless.
                Patience::Full if is_missing => {
                    self.patience = Patience::Running;
                    return vec![Output::StartPatience];
                }
                Patience::Running if is_missing => return vec![],
                _ => return self.raise(),
            }
        }
        let refused = self.count(|at| at == At::Refused);
        let missing = refused + self.count(|at| at == At::Down);
        if self.phase != Phase::Attempt || !self.majority.is_blocked_by(missing) {
            return vec![];
        }
        let why = match refused {
            0 => Output::TooFew,
            _ => Output::Busy {
                may_be_split: held > 0,
            },
        };
        let mut outputs = self.end();
        outputs.push(why);
        outputs
    }

    /// The fence under which a majority holds the lock.
    fn confirmed(&self) -> Option<u64> {
        self.servers.iter().find_map(|at| match *at {
            At::Held { fence, .. } => {
                let same =
                    self.count(|other| matches!(other, At::Held { fence: other, .. } if other == fence));
                (same >= self.majority.needed()).then_some(fence)
            }
            _ => None,
        })
    }

    /// Raises what a majority needs to the smallest fence that it can have.
    fn raise(&mut self) -> Vec<Output> {
        let reaches = |at: At, to: u64| at.fences().is_some_and(|(least, most)| least <= to && to <= most);
        let mut targets: Vec<u64> = self
            .servers
            .iter()
            .filter_map(|at| Some(at.fences()?.0))
            .collect();
        targets.sort_unstable();
        let largest = targets.last().copied();
        let enough = |to: &u64| self.count(|at| reaches(at, *to)) >= self.majority.needed();
        let Some(to) = targets.into_iter().find(enough) else {
            // Too few follow the server that is ahead: as good as down.
            let ahead = self
                .servers
                .iter()
                .position(|at| at.fences().map(|fences| fences.0) == largest);
            let Some(server) = ahead else {
                return vec![];
            };
            self.set(server, At::Down);
            let mut outputs = vec![Output::GiveBack(server)];
            outputs.extend(self.decide());
            return outputs;
        };
        let mut outputs = vec![];
        for (server, at) in self.servers.iter_mut().enumerate() {
            if let At::Held { fence, most } = *at
                && fence < to
                && to <= most
            {
                *at = At::Raising { from: fence, to };
                outputs.push(Output::Raise(server, to));
            }
        }
        outputs
    }

    fn at(&self, server: usize) -> At {
        self.servers.get(server).copied().unwrap_or(At::Away)
    }

    fn set(&mut self, server: usize, to: At) {
        if let Some(at) = self.servers.get_mut(server) {
            *at = to;
        }
    }

    fn count(&self, is: impl Fn(At) -> bool) -> usize {
        self.servers.iter().filter(|at| is(**at)).count()
    }
}

impl At {
    fn held(fence: u64) -> Self {
        let most = u64::MAX;
        Self::Held { fence, most }
    }

    /// The smallest fence that it can be counted on to have, and the largest, if the server holds the lock for us.
    fn fences(self) -> Option<(u64, u64)> {
        match self {
            Self::Held { fence, most } => Some((fence, most)),
            Self::Raising { to, .. } => Some((to, u64::MAX)),
            _ => None,
        }
    }
}
