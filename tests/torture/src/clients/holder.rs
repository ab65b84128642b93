//! A client that adds elements to a store under a mutex: a thread, or a process of its own.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::gate::Gate;
use super::lock_client::LockClient;
use super::route::Route;
use super::store::{Fencing, Store};
use crate::history::{Acquire, Limit, Recorder, Reply, Write, now};

/// The first arg of the command line of a process that is a holder.
const COMMAND: &str = "holder";
const KEY: &str = "door";
const BLOCK_MS: u64 = 500;
const ATTEMPTS: u32 = 5;
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Where a holder finds lock and store, and how it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderConfig {
    /// The port of the server with the locks.
    pub locks: u16,
    /// The port of the server with the store.
    pub store: u16,
    /// Where none is, the holder looks at its own clock before it writes.
    pub fencing: Fencing,
    /// The lease that it asks for.
    pub lease_ms: u64,
    /// For at most so long it thinks between reading and writing.
    pub think_ms: u64,
    /// Tells it and its elements from those of others.
    pub number: u64,
}

/// Elements of one holder do not reach those of the next.
const ELEMENTS: u64 = 1_000_000;

/// See the module.
pub struct Holder {
    config: HolderConfig,
    lock_client: LockClient,
    store: Store,
    rng: Rng,
    gate: Gate,
    next: u64,
}

impl Holder {
    /// A holder that stops at `gate`, in the worst of moments too: between reading and writing.
    pub fn new(config: HolderConfig, recorder: Recorder, gate: Gate, seed: u64) -> Self {
        let owner = format!("h{}", config.number);
        Self {
            lock_client: LockClient::new(owner, Route::to(config.locks, 1), recorder, REPLY_TIMEOUT),
            store: Store::open(config.store, config.fencing),
            rng: Rng::with_seed(seed),
            gate,
            next: config.number * ELEMENTS,
            config,
        }
    }

    /// Its connection to the locks.
    pub fn lock_client(&self) -> &LockClient {
        &self.lock_client
    }

    /// Adds elements until it is told to stop.
    pub fn run(&mut self, stop: &AtomicBool, mut written: impl FnMut(Write)) {
        while !stop.load(Ordering::Relaxed) {
            if let Some(write) = self.add_an_element() {
                written(write);
            }
        }
    }

    /// Read, think, write, as no store should be used without a lock.
    fn add_an_element(&mut self) -> Option<Write> {
        // An owner for one acquisition: what an earlier one left does not matter.
        self.next += 1;
        self.lock_client.owner = format!("h{}.{}", self.config.number, self.next % ELEMENTS);
        let id = self.next.to_string();
        let acquire = Acquire {
            lease_ms: self.config.lease_ms,
            limit: Limit::Of(1),
            block_ms: Some(BLOCK_MS),
            reqid: Some(id.clone()),
        };
        let grant = self.lock_client.acquire(KEY, acquire)?;
        let written = match grant.reply {
            Reply::Granted { fence, .. } => self.read_and_write(fence, grant.safe_deadline()),
            _ if grant.reply.is_unknown() => None,
            _ => return None,
        };
        self.take_back(&id);
        written
    }

    /// Releases, or withdraws what may still wait. If the reply is lost, again: it counts once.
    fn take_back(&mut self, id: &str) {
        for _ in 0..ATTEMPTS {
            let op = self.lock_client.release(KEY, None, false, Some(id.to_owned()));
            if op.is_some_and(|op| !op.reply.is_unknown()) {
                return;
            }
        }
    }

    fn read_and_write(&mut self, fence: u64, deadline: u64) -> Option<Write> {
        let mut elements = self.store.read(fence)?;
        thread::sleep(Duration::from_millis(self.rng.u64(..=self.config.think_ms)));
        // Without fences a careful holder does not write when its time is up. With them it need not care.
        if self.config.fencing == Fencing::Off && now() >= deadline {
            return None;
        }
        self.gate.pass();
        elements.insert(self.next);
        Some(Write {
            element: self.next,
            fence,
            acknowledged: self.store.write(&elements, fence),
            at: now(),
        })
    }
}

impl HolderConfig {
    /// The command line of a process that is this holder.
    pub fn to_args(self, seed: u64) -> Vec<String> {
        let fencing = u64::from(self.fencing == Fencing::On);
        let numbers = [
            self.locks.into(),
            self.store.into(),
            fencing,
            self.lease_ms,
            self.think_ms,
            self.number,
            seed,
        ];
        let numbers = numbers.iter().map(u64::to_string);
        [COMMAND.to_owned()].into_iter().chain(numbers).collect()
    }

    /// The holder that a command line asks for, and its seed; `None` for other command lines.
    pub fn from_args(args: &[String]) -> Option<(Self, u64)> {
        let (command, numbers) = args.split_first()?;
        let numbers: Vec<u64> = numbers.iter().map_while(|arg| arg.parse().ok()).collect();
        let [locks, store, fencing, lease_ms, think_ms, number, seed] = *numbers.as_slice() else {
            return None;
        };
        let config = Self {
            locks: locks.try_into().ok()?,
            store: store.try_into().ok()?,
            fencing: if fencing == 1 { Fencing::On } else { Fencing::Off },
            lease_ms,
            think_ms,
            number,
        };
        (command == COMMAND).then_some((config, seed))
    }
}

/// A process that is a holder: prints its writes, one a line, until its input final_states.
pub fn run_as_process(config: HolderConfig, seed: u64) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            // Any end of the input is the end of the work.
            let _ = io::stdin().lock().lines().count();
            stop.store(true, Ordering::Relaxed);
        }
    });
    let mut holder = Holder::new(config, Recorder::default(), Gate::default(), seed);
    holder.run(&stop, |write| {
        println!(
            "{} {} {} {}",
            write.element, write.fence, write.at, write.acknowledged
        );
        let _ = io::stdout().flush();
    });
    ExitCode::SUCCESS
}

/// A line that such a process printed.
pub fn parse_line(line: &str) -> Option<Write> {
    let mut args = line.split_whitespace();
    Some(Write {
        element: args.next()?.parse().ok()?,
        fence: args.next()?.parse().ok()?,
        at: args.next()?.parse().ok()?,
        acknowledged: args.next()?.parse().ok()?,
    })
}
