//! A client that adds elements to the store under a mutex, in a thread or a separate process.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use dlock_drill::clients::{Gate, LockClient};

use super::route::{ClientRoute, Route};
use super::store::{Fencing, Store};
use crate::history::{Acquire, Limit, Recorder, Reply, Wait, Write, now};

/// First argument of a holder process.
const COMMAND: &str = "holder";
const KEY: &str = "door";
const BLOCK_MS: u64 = 500;
const ATTEMPTS: u32 = 5;
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderConfig {
    pub locks: u16,
    pub store: u16,
    /// Without fencing, the holder checks its deadline before it writes.
    pub fencing: Fencing,
    pub lease_ms: u64,
    /// Maximum time between read and write.
    pub think_ms: u64,
    /// Identifies the holder and its elements.
    pub number: u64,
}

/// Range of elements of each holder.
const ELEMENTS: u64 = 1_000_000;

pub struct Holder {
    config: HolderConfig,
    lock_client: LockClient<ClientRoute>,
    store: Store,
    rng: Rng,
    gate: Gate,
    next: u64,
}

impl Holder {
    /// A holder that pauses at `gate`, also between read and write.
    pub fn new(config: HolderConfig, recorder: Recorder, gate: Gate, seed: u64) -> Self {
        let owner = format!("h{}", config.number);
        Self {
            lock_client: LockClient::new(owner, Route::to(config.locks, 1).into(), recorder, REPLY_TIMEOUT),
            store: Store::open(config.store, config.fencing),
            rng: Rng::with_seed(seed),
            gate,
            next: config.number * ELEMENTS,
            config,
        }
    }

    /// Its client of the lock server.
    pub fn lock_client(&self) -> &LockClient<ClientRoute> {
        &self.lock_client
    }

    /// Adds elements until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool, mut written: impl FnMut(Write)) {
        while !stop.load(Ordering::Relaxed) {
            if let Some(write) = self.add_element() {
                written(write);
            }
        }
    }

    /// Reads the set, waits, and writes it back with one more element.
    fn add_element(&mut self) -> Option<Write> {
        // A new owner for each acquire, so that leftovers of earlier ones do not matter.
        self.next += 1;
        self.lock_client.owner = format!("h{}.{}", self.config.number, self.next % ELEMENTS);
        let id = self.next.to_string();
        let acquire = Acquire {
            lease_ms: self.config.lease_ms,
            limit: Limit::Of(1),
            wait: Wait::Block { timeout_ms: BLOCK_MS },
            reqid: Some(id.clone()),
        };
        let grant = self.lock_client.acquire(KEY, acquire)?;
        let written = match grant.reply {
            Reply::Granted { fence, .. } => self.read_and_write(fence, grant.safe_deadline()),
            _ if grant.reply.is_unknown() => None,
            _ => return None,
        };
        self.release(&id);
        written
    }

    /// Releases the lock, or cancels a request whose reply was lost. Retries are safe because of the request id.
    fn release(&mut self, id: &str) {
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
        // Without fencing, a correct holder does not write after its deadline.
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
    /// Arguments of a process that runs this holder.
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

    /// Parses [`Self::to_args`]; `None` for other command lines.
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

/// Runs a holder as a process: prints one write per line until stdin is closed.
pub fn run_as_process(config: HolderConfig, seed: u64) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            // End of file or an error: stop.
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

pub fn parse_line(line: &str) -> Option<Write> {
    let mut args = line.split_whitespace();
    Some(Write {
        element: args.next()?.parse().ok()?,
        fence: args.next()?.parse().ok()?,
        at: args.next()?.parse().ok()?,
        acknowledged: args.next()?.parse().ok()?,
    })
}
