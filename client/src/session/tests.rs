//! Processes with whole sessions, and a server that is the core, on a simulated network: requests and replies are lost,
//! copies arrive late, connections are cut, readers stall, inboxes end, locks are broken, time passes.
//!
//! - No two processes hold a lock at the same time, as far as they know.
//! - In the end each request is granted or refused, and nobody holds anything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::{Arg, Cmd, Value};
use tokio::sync::oneshot::{Receiver, channel};

use super::{Sending, Session, SessionSettings};
use crate::clock::BootInstant;
use crate::command::{LockInfo, ProcessName};
use crate::error::Error;
use crate::events::Hook;
use crate::hold::Plan;
use crate::request::{Acquired, Exit, Held, Identity, Limit, Operation, Request};
use crate::testing::commands::{Client, Server};

const KEYS: usize = 3;
const PROCESSES: usize = 2;
const TASKS: usize = 4;
const SEEDS: u64 = 400;
const STEPS: usize = 600;
/// Late copies arrive within this time.
const LATE: Duration = Duration::from_millis(400);

struct World {
    random: fastrand::Rng,
    server: Server,
    processes: Vec<Process>,
    /// Copies that lost connections may still deliver, until then.
    copies: Vec<(BootInstant, Cmd)>,
    /// The fences of locks that were broken: their holders may not know yet.
    broken: Vec<u64>,
    granted: usize,
}

struct Process {
    session: Session,
    name: Arc<ProcessName>,
    numbers: Arc<AtomicU64>,
    exit: Arc<Exit>,
    requests: VecDeque<(Sending, Cmd)>,
    replies: VecDeque<(Sending, Value)>,
    reader: Option<Reader>,
    tasks: Vec<Task>,
}

/// What a reader does, without its connection.
struct Reader {
    inbox: [u8; 32],
    epoch: u64,
    cursor: u64,
    sent_at: Option<BootInstant>,
}

enum Task {
    Acquiring(u64, Receiver<Acquired>),
    Holding(Arc<Held>),
}

fn cut() -> Error {
    redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).into()
}

fn execute(server: &mut Server, command: &Cmd) -> Value {
    let words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => panic!("no command has a cursor of redis-rs"),
    });
    let mut client = Client::default();
    let waits = server.run(&mut client, &words.collect::<Vec<_>>());
    assert!(waits.is_none(), "nothing blocks here");
    server.process_due();
    redis::parse_redis_value(&client.output).expect("a reply")
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            server: Server::new(),
            processes: (0..PROCESSES).map(|_| Process::new()).collect(),
            copies: Vec::new(),
            broken: Vec::new(),
            granted: 0,
        }
    }

    fn now(&mut self) -> BootInstant {
        BootInstant::after_boot(self.server.uptime())
    }

    /// Something happens.
    fn step(&mut self) {
        let which = self.random.usize(..PROCESSES);
        match self.random.u32(..100) {
            0..12 => self.acquire(which),
            12..40 => self.deliver_request(which),
            40..65 => self.deliver_reply(which),
            65..75 => self.read(which, true),
            75..80 => self.end_task(which),
            80..84 => self.cut(which),
            84..88 => self.deliver_copy(),
            88..98 => {
                let ms = 1 << self.random.u32(..9);
                self.pass(ms);
            }
            98 => self.pass(6_000),
            _ => self.break_lock(),
        }
        self.settle();
    }

    fn acquire(&mut self, which: usize) {
        let now = self.now();
        let process = &mut self.processes[which];
        if process.tasks.len() == TASKS {
            return;
        }
        let number = process.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let key = format!("key{}", self.random.usize(..KEYS)).into_bytes();
        let lease = Duration::from_millis([300, 2_000, 60_000][self.random.usize(..3)]);
        let request = Request {
            min_fence: None,
            identity: Identity::new(key.into(), None, number, &process.name),
            limit: Limit::Mutex,
            plan: Plan {
                lease,
                renew_after: lease / 3,
                max_hold: None,
                release_after: None,
            },
            acknowledgement: None,
            waits: self.random.u32(..5) > 0,
            until: None,
        };
        let (reply, acquired) = channel();
        process
            .session
            .on_operation(Operation::Acquire(request, reply), now);
        process.tasks.push(Task::Acquiring(number, acquired));
    }

    fn deliver_request(&mut self, which: usize) {
        let process = &mut self.processes[which];
        if let Some((sending, command)) = process.requests.pop_front() {
            let reply = execute(&mut self.server, &command);
            process.replies.push_back((sending, reply));
        }
    }

    fn deliver_reply(&mut self, which: usize) {
        let now = self.now();
        let process = &mut self.processes[which];
        if let Some((sending, reply)) = process.replies.pop_front() {
            let reply = reply.extract_error().map_err(Error::from);
            process.session.on_reply(sending, reply, now);
        }
    }

    /// The connection is lost, with all that is under way. Some of it arrives late.
    fn cut(&mut self, which: usize) {
        let now = self.now();
        let process = &mut self.processes[which];
        process.session.on_disconnected(now);
        let replies = process.replies.drain(..).map(|(sending, _)| sending);
        let mut lost: Vec<Sending> = replies.collect();
        for (sending, command) in process.requests.drain(..) {
            lost.push(sending);
            if self.random.bool() {
                self.copies.push((now + LATE, command));
            }
        }
        for sending in lost {
            process.session.on_reply(sending, Err(cut()), now);
        }
        process.session.on_connected();
    }

    fn deliver_copy(&mut self) {
        if !self.copies.is_empty() {
            let (_, command) = self.copies.swap_remove(self.random.usize(..self.copies.len()));
            execute(&mut self.server, &command);
        }
    }

    /// A call of GRANTS, whose reply may be lost.
    fn read(&mut self, which: usize, may_lose: bool) {
        let now = self.now();
        let process = &mut self.processes[which];
        let Some(reader) = &mut process.reader else {
            return;
        };
        let sent_at = *reader.sent_at.get_or_insert(now);
        let mut command = redis::cmd("DLOCK.GRANTS");
        command
            .arg(&reader.inbox)
            .arg(reader.cursor)
            .arg("TTL")
            .arg(5_000);
        let reply = execute(&mut self.server, &command);
        if may_lose && self.random.u32(..4) == 0 {
            return;
        }
        let epoch = reader.epoch;
        let session = &mut process.session;
        match reply.extract_error() {
            Ok(reply) => {
                let (cursor, waited_ms, answers): (u64, u64, Vec<Value>) =
                    redis::from_redis_value(reply).expect("a reply of GRANTS");
                let is_new = std::mem::replace(&mut reader.cursor, cursor) == 0;
                reader.sent_at = None;
                if is_new {
                    session.on_inbox_open(epoch, now);
                }
                session.on_answers(sent_at, Duration::from_millis(waited_ms), &answers, now);
            }
            Err(error) => {
                assert!(matches!(error.code(), Some("NOINBOX" | "BUSYINBOX")), "{error}");
                session.end_inbox(epoch);
                process.reader = None;
            }
        }
    }

    /// A task releases what it holds, drops it, or is cancelled.
    fn end_task(&mut self, which: usize) {
        let now = self.now();
        let process = &mut self.processes[which];
        if process.tasks.is_empty() {
            return;
        }
        let task = process
            .tasks
            .swap_remove(self.random.usize(..process.tasks.len()));
        process.end(task, now);
    }

    fn break_lock(&mut self) {
        let key = format!("key{}", self.random.usize(..KEYS));
        let info = execute(&mut self.server, redis::cmd("DLOCK.INFO").arg(&key));
        let info: Option<LockInfo> = redis::from_redis_value(info).expect("a reply of INFO");
        let holders = info.iter().flat_map(|info| &info.holders);
        self.broken.extend(holders.map(|holder| holder.fence));
        self.server.lose(key.as_bytes());
        self.server.process_due();
    }

    fn pass(&mut self, ms: u64) {
        self.server.advance(Duration::from_millis(ms), false);
        let now = self.now();
        self.copies.retain(|(until, _)| *until > now);
        for process in &mut self.processes {
            process.session.on_time(now);
        }
    }

    /// What processes do at once; and nobody holds a lock beside another.
    fn settle(&mut self) {
        let now = self.now();
        for process in &mut self.processes {
            self.granted += process.settle(now);
        }
        for key in 0..KEYS {
            let key = format!("key{key}").into_bytes();
            let held = self.processes.iter().flat_map(Process::holds);
            let is_held = |held: &&Arc<Held>| *held.identity.key == *key && held.hold().is_held(now);
            let is_broken = |held: &&Arc<Held>| self.broken.contains(&held.fence());
            let holders = held.filter(is_held).filter(|held| !is_broken(held)).count();
            assert!(holders <= 1, "{holders} hold {key:?}");
        }
    }

    /// No faults any more: what is asked for is granted in the end.
    fn run_calmly(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            for which in 0..PROCESSES {
                while !self.processes[which].requests.is_empty() {
                    self.deliver_request(which);
                }
                while !self.processes[which].replies.is_empty() {
                    self.deliver_reply(which);
                }
                self.read(which, false);
            }
            self.settle();
            if is_done(self) {
                return;
            }
            self.pass(10);
        }
        let entries = self.processes.iter().map(|process| process.session.entries.len());
        panic!("in vain: {what}: {:?}", entries.collect::<Vec<_>>());
    }
}

impl Process {
    fn new() -> Self {
        let (name, numbers) = (Arc::new(ProcessName::new()), Arc::new(AtomicU64::new(0)));
        let settings = SessionSettings {
            process: Arc::clone(&name),
            numbers: Arc::clone(&numbers),
            hook: Hook::default(),
            exit: Arc::default(),
            is_cluster: false,
            patience: Duration::from_secs(3),
        };
        Self {
            session: Session::new(settings),
            name,
            numbers,
            exit: Arc::default(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            reader: None,
            tasks: Vec::new(),
        }
    }

    fn holds(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.tasks.iter().filter_map(|task| match task {
            Task::Holding(held) => Some(held),
            Task::Acquiring(..) => None,
        })
    }

    /// Sends what is ready, starts readers, and takes what was granted: how much that was.
    fn settle(&mut self, now: BootInstant) -> usize {
        if self.session.inbox.take_wanted() {
            self.reader = Some(Reader {
                inbox: *self.session.inbox.name(),
                epoch: self.session.inbox.epoch(),
                cursor: 0,
                sent_at: None,
            });
        }
        self.requests.extend(self.session.take_commands(now));
        let mut granted = 0;
        for task in std::mem::take(&mut self.tasks) {
            match task {
                Task::Acquiring(number, mut acquired) => match acquired.try_recv() {
                    Ok(Ok(Some(held))) => {
                        granted += 1;
                        self.tasks.push(Task::Holding(held));
                    }
                    Ok(Ok(None) | Err(_)) => {}
                    Err(_) => self.tasks.push(Task::Acquiring(number, acquired)),
                },
                task => self.tasks.push(task),
            }
        }
        granted
    }

    fn end(&mut self, task: Task, now: BootInstant) {
        let pending = self.exit.begin();
        let operation = match task {
            Task::Acquiring(number, _) => Operation::Abandon(number, pending),
            Task::Holding(held) => Operation::Release {
                held,
                keeps: true,
                reply: None,
                pending,
            },
        };
        self.session.on_operation(operation, now);
    }
}

fn is_waiting(process: &Process) -> bool {
    let mut tasks = process.tasks.iter();
    tasks.any(|task| matches!(task, Task::Acquiring(..)))
}

/// How much was granted.
fn simulate(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.run_calmly("an outcome for each request", |world| {
        // Those who hold stand in the way.
        !world.processes.iter().any(is_waiting)
            || world
                .processes
                .iter()
                .any(|process| process.holds().next().is_some())
    });
    while world.processes.iter().any(|process| !process.tasks.is_empty()) {
        let now = world.now();
        for process in &mut world.processes {
            let (held, waiting) = std::mem::take(&mut process.tasks)
                .into_iter()
                .partition(|task| matches!(task, Task::Holding(_)));
            process.tasks = waiting;
            let held: Vec<Task> = held;
            for task in held {
                process.end(task, now);
            }
        }
        world.run_calmly("the next grants", |world| {
            !world.processes.iter().any(is_waiting)
                || world
                    .processes
                    .iter()
                    .any(|process| process.holds().next().is_some())
        });
    }
    world.run_calmly("the end of all sessions", |world| {
        world.processes.iter().all(|process| process.session.is_over())
    });
    for key in 0..KEYS {
        let mut command = redis::cmd("DLOCK.INFO");
        let info = execute(&mut world.server, command.arg(format!("key{key}")));
        assert_eq!(info, Value::Nil, "key{key} is held by nobody");
    }
    world.granted
}

#[test]
fn sessions_on_a_bad_network_exclude_each_other_and_forget_nothing() {
    let granted: usize = (0..SEEDS)
        .map(|seed| {
            // Shown if it fails.
            eprintln!("seed {seed}");
            simulate(seed)
        })
        .sum();
    assert!(granted > 4_000, "{granted}");
}
