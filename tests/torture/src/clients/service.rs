//! A process with many tasks that acquire, hold and release locks with the Rust client. It prints what it is promised.

use std::io;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use redis::ProtocolVersion;
use redis::cluster::ClusterClientBuilder;
use redis_dlock_client::{Error, Guard, Lock, Locks, Lost, Settings};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::promise::{Promise, Promised};
use crate::history::{Micros, now};

/// First argument of such a process.
const COMMAND: &str = "service";
/// Shorter than a frozen network.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The last locks are semaphores and read-write locks.
const KINDS: usize = 5;
/// How long a lock is held, but for one in so many grants for up to a lease.
const HOLD_MS: u64 = 60;
const LONG_HOLD_ONE_IN: u8 = 2;
/// Between two requests of a task.
const IDLE_MS: u64 = 40;
/// One in this many grants is not released.
const KEPT_ONE_IN: u8 = 10;
/// One in this many requests is given up, and one has a limit.
const GIVEN_UP_ONE_IN: u8 = 10;
const LIMITED_ONE_IN: u8 = 4;
const LONGEST_WAIT_MS: u64 = 2_500;
/// Without faults, a request that is not answered within this time is forgotten.
const PATIENCE: Duration = Duration::from_secs(40);

/// The arguments of a process.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    pub name: String,
    pub seed: u64,
    pub lease_ms: u64,
    pub tasks: u64,
    /// Of the server, or of the nodes of a cluster.
    pub ports: Vec<u16>,
    pub keys: Vec<String>,
}

/// What the process reads from its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Work,
    /// Make no more requests for a while.
    Rest,
    /// Make no more requests, and end when everything has been answered.
    Finish,
}

impl ServiceConfig {
    pub fn to_args(&self) -> Vec<String> {
        let Self { name, keys, .. } = self;
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let numbers = [self.seed, self.lease_ms, self.tasks].map(|number| number.to_string());
        let words = [COMMAND, name, &ports.join(",")].map(str::to_owned);
        words.into_iter().chain(numbers).chain(keys.clone()).collect()
    }

    /// Parses [`Self::to_args`]; `None` for other command lines.
    pub fn from_args(args: &[String]) -> Option<Self> {
        let [command, name, ports, seed, lease_ms, tasks, keys @ ..] = args else {
            return None;
        };
        let ports = ports.split(',').map(|port| port.parse().ok());
        let config = Self {
            name: name.clone(),
            seed: seed.parse().ok()?,
            lease_ms: lease_ms.parse().ok()?,
            tasks: tasks.parse().ok()?,
            ports: ports.collect::<Option<_>>()?,
            keys: keys.to_vec(),
        };
        (command == COMMAND).then_some(config)
    }

    fn open(&self) -> Result<Locks, Error> {
        let urls = self.ports.iter().map(|port| format!("redis://127.0.0.1:{port}/"));
        let mut urls: Vec<String> = urls.collect();
        let settings = Settings::default().response_timeout(RESPONSE_TIMEOUT);
        if urls.len() == 1 {
            return Locks::with(urls.remove(0), settings);
        }
        // With RESP3, connections tell that they are lost.
        let cluster = ClusterClientBuilder::new(urls).use_protocol(ProtocolVersion::RESP3);
        Locks::with(cluster.build()?, settings)
    }
}

impl Instruction {
    pub fn to_line(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Rest => "rest",
            Self::Finish => "finish",
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let all = [Self::Work, Self::Rest, Self::Finish];
        all.into_iter().find(|instruction| instruction.to_line() == line)
    }
}

/// Runs the tasks until the standard input tells to finish. Its end ends the process.
pub fn run_as_process(config: ServiceConfig) -> ExitCode {
    let (sender, instructions) = watch::channel(Instruction::Work);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let instruction = Instruction::parse(&line).expect("a known instruction");
            sender.send_replace(instruction);
        }
        process::exit(1);
    });
    let runtime = Runtime::new().expect("a runtime can be started");
    runtime.block_on(serve(Arc::new(config), &instructions));
    ExitCode::SUCCESS
}

async fn serve(config: Arc<ServiceConfig>, instructions: &watch::Receiver<Instruction>) {
    let locks = config.open().expect("the addresses are valid");
    let mut rng = Rng::with_seed(config.seed);
    let mut tasks = JoinSet::new();
    for number in 0..config.tasks {
        let task = Task {
            name: format!("{}.{number}", config.name),
            config: Arc::clone(&config),
            locks: locks.clone(),
            instructions: instructions.clone(),
            rng: rng.fork(),
            requests: 0,
        };
        tasks.spawn(task.run());
    }
    tasks.join_all().await;
    // What was given up or dropped is released, unless its lease ends before.
    let _ = timeout(PATIENCE, locks.shutdown()).await;
}

struct Task {
    name: String,
    config: Arc<ServiceConfig>,
    locks: Locks,
    instructions: watch::Receiver<Instruction>,
    rng: Rng,
    requests: u64,
}

impl Task {
    async fn run(mut self) {
        loop {
            sleep(self.up_to(IDLE_MS)).await;
            let instruction = *self.instructions.borrow();
            match instruction {
                Instruction::Work => self.acquire_and_hold().await,
                Instruction::Rest => {}
                Instruction::Finish => return,
            }
        }
    }

    async fn acquire_and_hold(&mut self) {
        self.requests += 1;
        // Each request has an owner of its own.
        let owner = format!("{}.{}", self.name, self.requests);
        let n = self.rng.usize(..self.config.keys.len());
        let key = self.config.keys[n].clone();
        let (lock, limit) = self.lock(n, &key, &owner);
        let sent = now();
        let is_given_up = self.rng.u8(..GIVEN_UP_ONE_IN) == 0;
        let patience = self.up_to(LONGEST_WAIT_MS);
        let outcome = tokio::select! {
            outcome = lock.acquire() => outcome,
            () = sleep(patience), if is_given_up => return,
            () = self.is_forgotten() => return print(&owner, &key, Promised::Forgotten),
        };
        match outcome {
            Ok(guard) => {
                print_remaining(&guard, &owner, &key, |lease_ms| Promised::Granted {
                    limit,
                    after: sent,
                    fence: guard.fence(),
                    lease_ms,
                });
                self.hold(guard, &owner, &key).await;
            }
            Err(Error::Timeout { .. }) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => print(&owner, &key, Promised::Unexpected(error.to_string())),
        }
    }

    /// The lock, and how many may hold it; 0: any number of readers.
    fn lock(&mut self, n: usize, key: &str, owner: &str) -> (Lock, u32) {
        let lock = self.locks.lock(key).owner(owner);
        let mut lock = lock.lease(Duration::from_millis(self.config.lease_ms));
        if self.rng.u8(..LIMITED_ONE_IN) == 0 {
            lock = lock.timeout(self.up_to(LONGEST_WAIT_MS));
        }
        match n % KINDS {
            3 => (lock.limit(2), 2),
            4 if self.rng.bool() => (lock.shared(), 0),
            _ => (lock, 1),
        }
    }

    async fn is_forgotten(&self) {
        let mut instructions = self.instructions.clone();
        let _ = instructions.wait_for(|told| *told == Instruction::Finish).await;
        sleep(PATIENCE).await;
    }

    async fn hold(&mut self, guard: Guard, owner: &str, key: &str) {
        if self.rng.u8(..KEPT_ONE_IN) == 0 {
            guard.stop_renewing();
            guard.lost().await;
            return;
        }
        let is_long = self.rng.u8(..LONG_HOLD_ONE_IN) == 0;
        let time = self.up_to(if is_long { self.config.lease_ms } else { HOLD_MS });
        match timeout(time, guard.lost()).await {
            Ok(Lost::NotHeld | Lost::NotOwner | Lost::Stale) => print(owner, key, Promised::Denied),
            Ok(_) => {}
            Err(_) => {
                print_remaining(&guard, owner, key, |lease_ms| Promised::Held { lease_ms });
                print(owner, key, Promised::Released);
                // Whether or not it was still held.
                let _ = guard.release().await;
            }
        }
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.rng.u64(..=ms))
    }
}

/// Before anything else happens: a process that is killed has printed what others must respect.
fn print(owner: &str, key: &str, kind: Promised) {
    print_at(now(), owner, key, kind);
}

/// The rest of the lease from this moment on, if there is any.
fn print_remaining(guard: &Guard, owner: &str, key: &str, kind: impl FnOnce(u64) -> Promised) {
    let at = now();
    let lease_ms = u64::try_from(guard.remaining().as_millis()).unwrap_or(u64::MAX);
    if lease_ms > 0 {
        print_at(at, owner, key, kind(lease_ms));
    }
}

fn print_at(at: Micros, owner: &str, key: &str, kind: Promised) {
    let (owner, key) = (owner.to_owned(), key.to_owned());
    println!("{}", Promise { owner, key, at, kind });
}
