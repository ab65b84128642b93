//! The client of a quorum in the specification, and the machine of the Rust crate.

use std::collections::BTreeMap;

use redis_dlock_quorum::acquisition::{Acquisition, Input, Output};

use crate::trace::{Data, Difference, Trace};

const SERVERS: usize = 3;

/// What a client learns, or decides by itself.
#[derive(Clone, Debug)]
pub struct Step {
    pub client: String,
    pub event: Event,
}

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Asks all servers for this fence at least.
    Begins(u64),
    Hears(Input),
    /// It is over, by a release or a death.
    Ends,
    /// Something that it does not see.
    Elsewhere,
}

/// What the machine says to do.
pub type Outputs = Vec<Output>;

/// Replays a trace. `code` does a step.
pub fn replay(trace: &Trace, mut code: impl FnMut(&Step) -> Outputs) -> Result<(), Difference> {
    trace.replay(|state| {
        let last = state.var("last");
        let outputs = last.get("outputs").list().map(specified_output);
        (sorted(code(&Step::of(last))), sorted(outputs.collect()))
    })
}

/// The order of what is sent to different servers does not matter.
fn sorted(mut outputs: Outputs) -> Vec<String> {
    for output in &mut outputs {
        // The specification does not say whether votes may be split.
        if let Output::Busy { may_be_split } = output {
            *may_be_split = false;
        }
    }
    let mut texts: Vec<String> = outputs.iter().map(|output| format!("{output:?}")).collect();
    texts.sort();
    texts
}

impl Step {
    fn of(last: Data<'_>) -> Self {
        let server = last.get("server").int() as usize;
        let event = match last.get("name").text() {
            "begins" => Event::Begins(last.get("guess").int() as u64),
            "hears" => Event::Hears(specified_input(server, last.get("reply"))),
            "patienceOver" => Event::Hears(Input::PatienceOver),
            "isLate" => Event::Hears(Input::Lost(server)),
            "releases" | "dies" => Event::Ends,
            "arrives" | "leaseEnds" | "restarts" | "graceEnds" => Event::Elsewhere,
            other => panic!("an unknown action: {other}"),
        };
        Self {
            client: last.get("client").text().to_owned(),
            event,
        }
    }
}

fn specified_input(server: usize, reply: Data<'_>) -> Input {
    let (tag, value) = reply.variant();
    match tag {
        "Granted" => Input::Granted(server, value.int() as u64),
        "Refused" => Input::Refused(server),
        "Failed" => Input::Failed(server),
        "Raised" => Input::Raised(server, value.int() as u64),
        "RaiseRejected" => Input::RaiseRejected(server),
        _ => panic!("an unknown reply: {tag}"),
    }
}

fn specified_output(output: Data<'_>) -> Output {
    let (tag, value) = output.variant();
    match tag {
        "Send" => {
            let server = value.get("server").int() as usize;
            let (request, value) = value.get("request").variant();
            match request {
                "Ask" => Output::Ask {
                    server,
                    queues: false,
                    min_fence: value.int() as u64,
                },
                "Raise" => Output::Raise(server, value.int() as u64),
                "GiveBack" => Output::GiveBack(server),
                _ => panic!("an unknown request: {request}"),
            }
        }
        "StartPatience" => Output::StartPatience,
        "HandOut" => Output::HandOut(value.int() as u64),
        "Busy" => Output::Busy { may_be_split: false },
        "TooFew" => Output::TooFew,
        _ => panic!("an unknown output: {tag}"),
    }
}

/// The machines of the clients.
#[derive(Default)]
pub struct Machines(BTreeMap<String, Acquisition>);

impl Machines {
    pub fn step(&mut self, step: &Step) -> Outputs {
        match step.event {
            Event::Begins(fence) => {
                let mut machine = Acquisition::new(SERVERS, true, fence);
                let outputs = machine.attempt(|_| true);
                self.0.insert(step.client.clone(), machine);
                outputs
            }
            Event::Hears(input) => {
                let machine = self.0.get_mut(&step.client);
                machine.map_or_else(Vec::new, |machine| machine.on(input))
            }
            Event::Ends => {
                self.0.remove(&step.client);
                vec![]
            }
            Event::Elsewhere => vec![],
        }
    }
}
