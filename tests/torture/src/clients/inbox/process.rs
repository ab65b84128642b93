//! The process: many tasks that acquire, hold and release locks.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::client::{InboxClient, Mistake, Outcome};
use super::node::{Event, InboxTimes, NodeAddress};
use super::outgoing::Outgoing;
use crate::history::{Limit, Micros, ServerTerm, now};

/// First argument of a waiter process.
const COMMAND: &str = "waiter";
/// The last locks are semaphores and read-write locks.
const KINDS: usize = 5;
/// How long a lock is held, but for one in so many grants for up to a lease.
const HOLD_MS: u64 = 60;
const LONG_HOLD_ONE_IN: u8 = 4;
/// Between two requests of a task.
const IDLE_MS: u64 = 40;
/// One in this many grants is not released.
const KEPT_ONE_IN: u8 = 40;
/// The same where clients are wrong about leases.
const MISTAKEN_KEPT_ONE_IN: u8 = 4;
/// One in this many requests is given up, one is sent again although it is queued, and one has a limit.
const GIVEN_UP_ONE_IN: u8 = 10;
const REPEATED_ONE_IN: u8 = 4;
const LIMITED_ONE_IN: u8 = 4;
const LONGEST_WAIT_MS: u64 = 2_500;
/// The end: nothing was granted, answered or released for so long.
const QUIET: Micros = 8_000_000;
const TICK: Duration = Duration::from_millis(20);

/// The arguments of a waiter process.
#[derive(Clone, Debug)]
pub struct WaiterConfig {
    pub name: String,
    pub seed: u64,
    pub times: InboxTimes,
    pub lease_ms: u64,
    pub tasks: u32,
    pub mistake: Mistake,
    pub keys: Vec<String>,
}

/// What the process reads from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// The servers, from now on.
    Nodes(Vec<NodeAddress>),
    /// Make no more requests for a while.
    Rest,
    Work,
    /// Make no more requests, and end when everything has been answered.
    Finish,
}

impl WaiterConfig {
    pub fn to_args(&self) -> Vec<String> {
        let mistake = match self.mistake {
            Mistake::None => 0,
            Mistake::NothingRepeated => 1,
            Mistake::WholeLease => 2,
        };
        let InboxTimes { block, ttl, patience } = self.times;
        let numbers = [
            self.seed,
            block,
            ttl,
            patience,
            self.lease_ms,
            self.tasks.into(),
            mistake,
        ];
        let words = [COMMAND.to_owned(), self.name.clone()].into_iter();
        let numbers = numbers.iter().map(u64::to_string);
        words.chain(numbers).chain(self.keys.clone()).collect()
    }

    /// Parses [`Self::to_args`]; `None` for other command lines.
    pub fn from_args(args: &[String]) -> Option<Self> {
        let [
            command,
            name,
            seed,
            block,
            ttl,
            patience,
            lease_ms,
            tasks,
            mistake,
            keys @ ..,
        ] = args
        else {
            return None;
        };
        let config = Self {
            name: name.clone(),
            seed: seed.parse().ok()?,
            times: InboxTimes {
                block: block.parse().ok()?,
                ttl: ttl.parse().ok()?,
                patience: patience.parse().ok()?,
            },
            lease_ms: lease_ms.parse().ok()?,
            tasks: tasks.parse().ok()?,
            mistake: match mistake.as_str() {
                "1" => Mistake::NothingRepeated,
                "2" => Mistake::WholeLease,
                _ => Mistake::None,
            },
            keys: keys.to_vec(),
        };
        (command == COMMAND).then_some(config)
    }
}

impl Instruction {
    pub fn to_line(&self) -> String {
        match self {
            Self::Nodes(nodes) => {
                let words = nodes.iter().map(|node| {
                    let ServerTerm { port, term } = node.server;
                    format!(" {port}:{term}:{}:{}", node.requests, node.reader)
                });
                format!("nodes{}", words.collect::<String>())
            }
            Self::Rest => "rest".into(),
            Self::Work => "work".into(),
            Self::Finish => "finish".into(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(match words.next()? {
            "nodes" => Self::Nodes(words.map(parse_node).collect::<Option<_>>()?),
            "rest" => Self::Rest,
            "work" => Self::Work,
            "finish" => Self::Finish,
            _ => return None,
        })
    }
}

fn parse_node(word: &str) -> Option<NodeAddress> {
    let numbers: Option<Vec<u32>> = word.split(':').map(|number| number.parse().ok()).collect();
    let [port, term, requests, reader] = *numbers?.as_slice() else {
        return None;
    };
    Some(NodeAddress {
        server: ServerTerm {
            port: port.try_into().ok()?,
            term,
        },
        requests: requests.try_into().ok()?,
        reader: reader.try_into().ok()?,
    })
}

/// Runs the tasks until the standard input tells to finish, or ends.
pub fn run_as_process(config: WaiterConfig) -> ExitCode {
    let (sender, events) = mpsc::channel();
    thread::spawn({
        let sender = sender.clone();
        move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                let _ = sender.send(Event::Line(line));
            }
            let _ = sender.send(Event::Ended);
        }
    });
    let mut rng = Rng::with_seed(config.seed);
    let inbox = format!("{:032x}", Rng::new().u128(..));
    let outgoing = Outgoing::new(inbox.clone(), config.times, sender);
    let client = InboxClient::new(&config.name, &inbox, config.lease_ms, config.mistake, outgoing);
    let mut process = Process {
        client,
        rng: rng.fork(),
        timers: BTreeMap::new(),
        timer_count: 0,
        tasks: HashSet::new(),
        is_resting: false,
        is_finishing: false,
        last_progress: now(),
        config,
    };
    process.run(&events)
}

struct Process {
    config: WaiterConfig,
    client: InboxClient,
    rng: Rng,
    timers: BTreeMap<(Micros, u64), Timer>,
    timer_count: u64,
    /// The requests of tasks.
    tasks: HashSet<u64>,
    is_resting: bool,
    is_finishing: bool,
    last_progress: Micros,
}

#[derive(Clone, Copy)]
enum Timer {
    /// A task acquires a lock.
    Acquire,
    GiveUp(u64),
    /// A request that may be queued, or granted, is sent again.
    Repeat(u64),
    Release(u64),
    /// The lease of a lock that was not released has ended.
    Expire(u64),
}

impl Process {
    fn run(&mut self, events: &Receiver<Event>) -> ExitCode {
        match events.recv() {
            Ok(Event::Line(line)) => self.obey(&line),
            _ => return ExitCode::FAILURE,
        }
        for _ in 0..self.config.tasks {
            self.schedule(0..=IDLE_MS, Timer::Acquire);
        }
        loop {
            match events.recv_timeout(self.until_next_timer()) {
                Ok(event) => {
                    for event in [event].into_iter().chain(events.try_iter()) {
                        match event {
                            Event::Line(line) => self.obey(&line),
                            Event::Ended => return ExitCode::FAILURE,
                            event => self.handle(event),
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
            self.run_timers();
            self.client.flush();
            if self.has_finished() {
                self.client.record_forgotten();
                return ExitCode::SUCCESS;
            }
        }
    }

    fn has_finished(&self) -> bool {
        self.is_finishing && (self.client.is_idle() || now() - self.last_progress > QUIET)
    }

    fn obey(&mut self, line: &str) {
        match Instruction::parse(line) {
            Some(Instruction::Nodes(nodes)) => self.client.set_nodes(&nodes),
            Some(Instruction::Rest) => self.is_resting = true,
            Some(Instruction::Work) => self.is_resting = false,
            Some(Instruction::Finish) => {
                self.is_finishing = true;
                self.last_progress = now();
            }
            None => eprintln!("dlock-torture: a waiter does not understand: {line}"),
        }
    }

    fn handle(&mut self, event: Event) {
        for outcome in self.client.handle(event) {
            self.last_progress = now();
            match outcome {
                Outcome::Granted { id, deadline } => self.hold(id, deadline),
                Outcome::Ended(id) => {
                    if self.tasks.remove(&id) {
                        self.schedule(0..=IDLE_MS, Timer::Acquire);
                    }
                }
            }
        }
    }

    fn hold(&mut self, id: u64, deadline: Micros) {
        let kept_one_in = match self.config.mistake {
            Mistake::WholeLease => MISTAKEN_KEPT_ONE_IN,
            _ => KEPT_ONE_IN,
        };
        if self.rng.u8(..kept_one_in) == 0 {
            self.at(deadline, Timer::Expire(id));
        } else {
            let is_long = self.rng.u8(..LONG_HOLD_ONE_IN) == 0;
            let longest_ms = if is_long { self.config.lease_ms } else { HOLD_MS };
            self.schedule(0..=longest_ms, Timer::Release(id));
        }
    }

    fn acquire(&mut self) {
        if self.is_finishing {
            return;
        }
        if self.is_resting {
            return self.schedule(IDLE_MS..=2 * IDLE_MS, Timer::Acquire);
        }
        let n = self.rng.usize(..self.config.keys.len());
        let limit = match n % KINDS {
            3 => Limit::Of(2),
            4 if self.rng.bool() => Limit::Shared,
            _ => Limit::Of(1),
        };
        let timeout_ms = if self.rng.u8(..LIMITED_ONE_IN) == 0 {
            self.rng.u64(1..=LONGEST_WAIT_MS)
        } else {
            0
        };
        let id = self.client.acquire(&self.config.keys[n], limit, timeout_ms);
        self.tasks.insert(id);
        if self.rng.u8(..GIVEN_UP_ONE_IN) == 0 {
            self.schedule(0..=LONGEST_WAIT_MS, Timer::GiveUp(id));
        }
        if self.rng.u8(..REPEATED_ONE_IN) == 0 {
            self.schedule(0..=LONGEST_WAIT_MS / 2, Timer::Repeat(id));
        }
    }

    fn run_timers(&mut self) {
        let now = now();
        while let Some(timer) = self.timers.first_entry().filter(|timer| timer.key().0 <= now) {
            match timer.remove() {
                Timer::Acquire => self.acquire(),
                Timer::GiveUp(id) => {
                    if self.client.is_waiting(id) {
                        self.client.release(id);
                    }
                }
                Timer::Repeat(id) => {
                    if self.client.is_waiting(id) {
                        self.client.repeat(id);
                    }
                }
                Timer::Release(id) => self.client.release(id),
                Timer::Expire(id) => {
                    self.client.forget(id);
                    if self.tasks.remove(&id) {
                        self.schedule(0..=IDLE_MS, Timer::Acquire);
                    }
                }
            }
        }
    }

    fn schedule(&mut self, ms: std::ops::RangeInclusive<u64>, timer: Timer) {
        let at = now() + self.rng.u64(ms) * 1_000;
        self.at(at, timer);
    }

    fn at(&mut self, at: Micros, timer: Timer) {
        self.timer_count += 1;
        self.timers.insert((at, self.timer_count), timer);
    }

    fn until_next_timer(&self) -> Duration {
        let next = self.timers.keys().next().map_or(Micros::MAX, |(at, _)| *at);
        Duration::from_micros(next.saturating_sub(now())).min(TICK)
    }
}
