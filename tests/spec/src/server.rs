//! The servers of a quorum in the specification, and three cores.

use dlock_core::testing::{Answer, Micros, Server};
use dlock_core::{Error, Fence};

use crate::trace::{Data, Difference, LEASE_MS, Trace, ask};

const GRACE_MS: u64 = 1_000;
const PAST_GRACE_MICROS: Micros = 1_000_000;
/// The counters that the specification begins with.
const COUNTERS: [u64; 3] = [10, 22, 12];

/// What happens to a server.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client asks for this fence at least.
    Ask(String, u64),
    /// A client wants its fence to be this one.
    Raise(String, u64),
    GiveBack(String),
    /// The lease of its holder ends.
    LeaseEnds,
    Restarts,
    /// Its counter advances to this.
    GraceEnds(u64),
    /// Something that it does not see.
    Elsewhere,
}

/// What came of it. The fences are those of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reply: Reply,
    /// With its fence.
    pub holder: Option<(String, u64)>,
    pub counter: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted(u64),
    Refused,
    Failed,
    Raised(u64),
    RaiseRejected,
    Nothing,
}

/// Replays a trace. `code` does a step at one of the servers.
pub fn replay(trace: &Trace, mut code: impl FnMut(usize, &Event) -> Seen) -> Result<(), Difference> {
    trace.replay(|state| {
        let last = state.var("last");
        let server = last.get("server").int() as usize;
        let after = state.var("servers").list().nth(server).expect("three servers");
        let event = Event::of(last, after);
        let holder = after.get("holder").text();
        let reply = match event {
            Event::Ask(..) | Event::Raise(..) => Reply::specified(last.get("reply")),
            _ => Reply::Nothing,
        };
        let specified = Seen {
            reply,
            holder: (!holder.is_empty()).then(|| (holder.to_owned(), after.get("fence").int() as u64)),
            counter: after.get("counter").int() as u64,
        };
        (code(server, &event), specified)
    })
}

impl Event {
    fn of(last: Data<'_>, after: Data<'_>) -> Self {
        let client = last.get("client").text().to_owned();
        match last.get("name").text() {
            "arrives" => {
                let (request, value) = last.get("request").variant();
                match request {
                    "Ask" => Self::Ask(client, value.int() as u64),
                    "Raise" => Self::Raise(client, value.int() as u64),
                    "GiveBack" => Self::GiveBack(client),
                    _ => panic!("an unknown request: {request}"),
                }
            }
            "leaseEnds" | "isLate" => Self::LeaseEnds,
            "restarts" => Self::Restarts,
            "graceEnds" => Self::GraceEnds(after.get("counter").int() as u64),
            _ => Self::Elsewhere,
        }
    }
}

impl Reply {
    fn specified(reply: Data<'_>) -> Self {
        let (tag, value) = reply.variant();
        match tag {
            "Granted" => Self::Granted(value.int() as u64),
            "Refused" => Self::Refused,
            "Failed" => Self::Failed,
            "Raised" => Self::Raised(value.int() as u64),
            "RaiseRejected" => Self::RaiseRejected,
            _ => panic!("an unknown reply: {tag}"),
        }
    }
}

/// The cores.
pub struct Cores([Core; 3]);

struct Core {
    server: Server,
    /// How far its fences are above those of the specification.
    offset: Fence,
}

impl Cores {
    #[allow(clippy::new_without_default, reason = "it is no plain value")]
    pub fn new() -> Self {
        Self(COUNTERS.map(Core::with_counter))
    }

    pub fn step(&mut self, server: usize, event: &Event) -> Seen {
        self.0[server].step(event)
    }
}

impl Core {
    fn with_counter(counter: u64) -> Self {
        let server = Server::with(&["lock"]);
        let mut core = Self { server, offset: 0 };
        // Its clock decides where its fences begin.
        let Reply::Granted(first) = core.acquire("nobody", 0) else {
            panic!("a free lock is not granted");
        };
        core.release("nobody");
        core.offset = first;
        core.advance(counter);
        core
    }

    fn advance(&mut self, counter: u64) {
        self.server.state_mut().fences.observe(self.offset + counter);
    }

    fn step(&mut self, event: &Event) -> Seen {
        let reply = match event {
            Event::Ask(client, least) => self.acquire(client, *least),
            Event::Raise(client, fence) => self.raise(client, *fence),
            Event::GiveBack(client) => {
                self.release(client);
                Reply::Nothing
            }
            Event::LeaseEnds => {
                if let Some((holder, _)) = self.holder() {
                    self.release(&holder);
                }
                Reply::Nothing
            }
            Event::Restarts => {
                self.restart();
                Reply::Nothing
            }
            Event::GraceEnds(counter) => {
                self.server.pass(PAST_GRACE_MICROS);
                self.advance(*counter);
                Reply::Nothing
            }
            Event::Elsewhere => Reply::Nothing,
        };
        Seen {
            reply,
            holder: self.holder(),
            counter: self.server.state().fences.known() - self.offset,
        }
    }

    /// Without its data. What it knew of fences is only compared once its grace period is over.
    fn restart(&mut self) {
        let counter = self.server.state().fences.known() - self.offset;
        *self = Self::with_counter(counter);
        self.server.grace(GRACE_MS);
    }

    fn holder(&self) -> Option<(String, u64)> {
        let holders = self.server.stored(0);
        let (holder, _) = holders.first()?;
        let owner = String::from_utf8_lossy(holder.owner()).into_owned();
        Some((owner, holder.fence() - self.offset))
    }

    fn acquire(&mut self, client: &str, least: u64) -> Reply {
        let least = (self.offset + least).max(1);
        let request = format!("ACQUIRE {client} {LEASE_MS} REQID attempt MINFENCE {least}");
        match ask(&mut self.server, 0, &request) {
            Some(Ok(Answer::Granted(granted))) => Reply::Granted(granted.fence - self.offset),
            Some(Ok(Answer::NotGranted)) => Reply::Refused,
            Some(Err(Error::Grace { .. })) => Reply::Failed,
            other => panic!("{client}: {other:?}"),
        }
    }

    fn raise(&mut self, client: &str, fence: u64) -> Reply {
        let least = self.offset + fence;
        let request = format!("EXTEND {client} {LEASE_MS} REQID attempt MINFENCE {least}");
        match ask(&mut self.server, 0, &request) {
            // A larger fence stays: the reply to a raise says which one it is.
            Some(Ok(_)) => match self.holder() {
                Some((_, is)) if is == fence => Reply::Raised(fence),
                _ => Reply::RaiseRejected,
            },
            Some(Err(_)) => Reply::RaiseRejected,
            None => panic!("{client} waits"),
        }
    }

    fn release(&mut self, client: &str) {
        ask(&mut self.server, 0, &format!("RELEASE {client} REQID attempt"));
    }
}
