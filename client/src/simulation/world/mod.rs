//! What applications do, and when.

mod faults;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::checks::Checks;
use super::counts::Counts;
use super::ledger::{Holding, SharedLedger, Wanted, Who, acquire, key_name, lock, release};
use super::network::{self, Net, Network};
use super::runtimes::{Runtime, Task};
use super::{elapsed, tell};
use crate::background;
use crate::events::{Event, Hook};
use crate::locks::Locks;
use crate::server::Server;
use faults::{FAULTS, Fault};

const PROCESSES: usize = 2;
/// Runtimes of a process that acquire, besides the one of the background.
const RUNTIMES: usize = 2;
const KEYS: usize = 2;
/// What a process does at once, at most.
const TASKS: usize = 8;
const STEPS: usize = 120;
const LONGEST_LEASE: Duration = Duration::from_secs(60);
const LONG_LEASE: Duration = Duration::from_secs(2);
/// A short one is renewed often, and takes the most time to simulate.
const LEASES: [Duration; 6] = [
    Duration::from_millis(300),
    LONG_LEASE,
    LONG_LEASE,
    LONGEST_LEASE,
    LONGEST_LEASE,
    LONGEST_LEASE,
];
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

struct World {
    random: fastrand::Rng,
    ledger: SharedLedger,
    checks: Rc<RefCell<Checks>>,
    faults: Vec<Fault>,
    processes: Vec<Process>,
    owners: usize,
    /// Until when nothing else happens.
    rests_until: Duration,
    /// What happens next.
    planned: VecDeque<Plan>,
}

type Plan = Box<dyn FnOnce(&mut World)>;

struct Process {
    locks: Option<Locks>,
    /// The first one is that of the background.
    runtimes: Vec<Arc<Runtime>>,
    background: Arc<Task>,
    tasks: Vec<(Arc<Runtime>, Arc<Task>)>,
}

/// Simulates what depends on this, with a server that is this far away.
pub(super) async fn run(mut random: fastrand::Rng, way: Duration) -> Counts {
    network::install(Net::new(random.fork(), PROCESSES, way));
    let ledger = SharedLedger::default();
    let checks = Rc::new(RefCell::new(Checks::new(KEYS)));
    let mut world = World::new(random, Arc::clone(&ledger), Rc::clone(&checks));
    tokio::select! {
        biased;
        () = deliver(|| check(&ledger, &checks)) => {}
        () = world.run() => {}
    }
    world.counts()
}

fn check(ledger: &SharedLedger, checks: &RefCell<Checks>) {
    let mut ledger = lock(ledger);
    network::with(|net| checks.borrow_mut().run(&mut ledger, net));
}

/// Carries messages. Never ends.
pub(super) async fn deliver(check: impl Fn()) {
    let wakeup = network::with(|net| net.wakeup());
    loop {
        network::with(Net::run);
        check();
        let pause = network::with(Net::due) - elapsed();
        tokio::select! {
            biased;
            () = wakeup.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

impl World {
    fn new(mut random: fastrand::Rng, ledger: SharedLedger, checks: Rc<RefCell<Checks>>) -> Self {
        let mut faults = FAULTS.to_vec();
        random.shuffle(&mut faults);
        faults.truncate(random.usize(1..=6));
        tell(|| format!("{faults:?}"));
        let processes = (0..PROCESSES)
            .map(|process| Process::new(process, &ledger))
            .collect();
        Self {
            random,
            ledger,
            checks,
            faults,
            processes,
            owners: 0,
            rests_until: Duration::ZERO,
            planned: VecDeque::new(),
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = network::with(|net| net.counts.clone());
        counts.add(lock(&self.ledger).counts.clone());
        counts
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            lock(&self.ledger).check();
            check(&self.ledger, &self.checks);
            network::with(|net| net.wakeup().notify_one());
            self.pass_time().await;
        }
        self.calm_down().await;
    }

    async fn pass_time(&mut self) {
        let ms = match self.random.u32(..100) {
            0..40 => 0,
            40..85 => self.random.u64(1..=20),
            85..97 => self.random.u64(20..=300),
            97..99 => self.random.u64(300..=2_000),
            _ => self.random.u64(2_000..=8_000),
        };
        let pause = Duration::from_millis(ms).max(self.rests_until.saturating_sub(elapsed()));
        match pause.is_zero() {
            true => yield_now().await,
            false => sleep(pause).await,
        }
    }

    fn step(&mut self) {
        if let Some(plan) = self.planned.pop_front() {
            return plan(self);
        }
        match self.random.u32(..300) {
            0..120 => self.acquire(),
            120..195 => self.give_up(),
            195..215 => self.drop_task(),
            215..235 => self.extend(),
            235..239 => self.stop_renewing(),
            239 => self.rest(),
            240..295 => self.go_wrong(),
            _ => {}
        }
    }

    /// Something is to happen in the next step.
    fn plan(&mut self, plan: impl FnOnce(&mut Self) + 'static) {
        self.planned.push_back(Box::new(plan));
    }

    // What applications do.

    /// A runtime of a process that is not slow.
    fn pick_runtime(&mut self) -> Option<(usize, Arc<Runtime>)> {
        let process = self.random.usize(..PROCESSES);
        let runtime = &self.processes[process].runtimes[self.random.usize(1..=RUNTIMES)];
        let runtime = Arc::clone(runtime);
        (!runtime.is_paused()).then_some((process, runtime))
    }

    fn acquire(&mut self) {
        let Some((process, runtime)) = self.pick_runtime() else {
            return;
        };
        let random = &mut self.random;
        let key = random.usize(..KEYS);
        let is_alone = random.u32(..10) > 0;
        let owner = match is_alone {
            true => format!("{process}-{}", self.owners),
            false => format!("{process}-shared"),
        };
        self.owners += 1;
        let lease = LEASES[random.usize(..LEASES.len())];
        let (waits, has_timeout) = (random.u32(..6) > 0, random.u32(..5) == 0);
        let this = &mut self.processes[process];
        this.tasks.retain(|(_, task)| !task.is_over());
        let Some(locks) = this.locks.as_ref().filter(|_| this.tasks.len() < TASKS) else {
            return;
        };
        let mut lock = locks.lock(key_name(key)).lease(lease).owner(&*owner);
        if has_timeout {
            lock = lock.timeout(Duration::from_millis(1 << random.u32(4..13)));
        }
        tell(|| format!("{owner} acquires {key}, waits: {waits}, {lease:?}"));
        let wanted = Wanted {
            lock,
            lease,
            waits,
            has_timeout,
        };
        let who = Who {
            process,
            runtime: Arc::clone(&runtime),
            key,
            owner,
            is_alone,
        };
        let task = runtime.spawn(acquire(Arc::clone(&self.ledger), wanted, who));
        this.tasks.push((runtime, task));
    }

    /// A guard of a process that is not slow.
    fn pick_guard(&mut self) -> Option<u64> {
        let ledger = lock(&self.ledger);
        let guards = ledger
            .guards
            .iter()
            .filter(|(_, holding)| !ledger.is_slow(holding.who.process));
        let numbers: Vec<_> = guards.map(|(number, _)| *number).collect();
        self.random.choice(numbers)
    }

    /// A guard is released, or dropped.
    fn give_up(&mut self) {
        let is_dropped = self.random.u32(..3) == 0;
        if let Some(number) = self.pick_guard() {
            self.give_up_guard(number, is_dropped);
        }
    }

    fn give_up_guard(&mut self, number: u64, is_dropped: bool) {
        let Some(Holding { who, guard, .. }) = lock(&self.ledger).take_unused(number) else {
            return;
        };
        tell(|| format!("{} is given up, dropped: {is_dropped}", who.owner));
        if let Some(guard) = Arc::into_inner(guard).filter(|_| !is_dropped) {
            let releasing = release(Arc::clone(&self.ledger), guard, who.clone());
            let task = who.runtime.spawn(releasing);
            self.processes[who.process].tasks.push((who.runtime, task));
        }
    }

    fn extend(&mut self) {
        if let Some(number) = self.pick_guard() {
            let lease = Duration::from_millis(1 << self.random.u32(6..16));
            self.extend_guard(number, lease);
        }
    }

    fn extend_guard(&mut self, number: u64, lease: Duration) -> Option<Arc<Task>> {
        let Holding { who, guard, .. } = lock(&self.ledger).guards.get(&number)?.clone();
        tell(|| format!("{} is extended for {lease:?}", who.owner));
        let extending = async move { _ = guard.extend(lease).await };
        let task = who.runtime.spawn(extending);
        self.processes[who.process]
            .tasks
            .push((who.runtime, Arc::clone(&task)));
        Some(task)
    }

    fn stop_renewing(&mut self) {
        let number = self.pick_guard();
        let mut ledger = lock(&self.ledger);
        if let Some(holding) = number.and_then(|number| ledger.guards.get_mut(&number)) {
            tell(|| format!("{} is not renewed any more", holding.who.owner));
            holding.is_renewed = false;
            holding.guard.stop_renewing();
        }
    }

    /// Nothing happens until leases end that are not renewed.
    fn rest(&mut self) {
        self.stop_renewing();
        self.rests_until = elapsed() + LONGEST_LEASE;
    }

    /// A future is dropped: of an acquisition, an extension or a release.
    fn drop_task(&mut self) {
        let process = self.random.usize(..PROCESSES);
        let tasks = &mut self.processes[process].tasks;
        tasks.retain(|(_, task)| !task.is_over());
        if tasks.is_empty() {
            return;
        }
        let (runtime, task) = &tasks[self.random.usize(..tasks.len())];
        if !runtime.is_paused() {
            tell(|| format!("a task of process {process} is dropped"));
            task.end();
        }
    }

    // The end.

    /// Nothing goes wrong any more: what is asked for is granted, and given back, and nothing is left.
    async fn calm_down(&mut self) {
        network::with(Net::calm_down);
        let runtimes = self.processes.iter().flat_map(|process| &process.runtimes);
        runtimes.for_each(|runtime| runtime.resume_all());
        self.wait_until("an outcome for each call", 30, |world| {
            let guards: Vec<_> = lock(&world.ledger).guards.keys().copied().collect();
            for number in guards {
                let is_dropped = world.random.bool();
                world.give_up_guard(number, is_dropped);
            }
            lock(&world.ledger).calls.is_empty() && lock(&world.ledger).guards.is_empty()
        })
        .await;
        self.wait_until("the end of all requests", 5, |world| world.is_over())
            .await;
        for process in &mut self.processes {
            process.tasks.clear();
            process.locks = None;
        }
        self.wait_until("the end of the background", 5, |world| {
            world.processes.iter().all(|process| process.background.is_over())
        })
        .await;
    }

    fn is_over(&self) -> bool {
        let ledger = lock(&self.ledger);
        let is_told = ledger
            .owners
            .values()
            .all(|account| account.ended == account.acquired);
        let is_empty = |key| {
            network::with(|net| {
                let (holders, queue) = net.server.lock(key_name(key).as_bytes());
                holders.is_empty() && queue.is_none()
            })
        };
        let is_done = |process: &Process| process.tasks.iter().all(|(_, task)| task.is_over());
        is_told
            && (0..KEYS).all(is_empty)
            && self.processes.iter().all(is_done)
            && ledger
                .sessions
                .iter()
                .all(|session| session.table().is_empty() && session.links.unanswered() == 0)
    }

    async fn wait_until(&mut self, what: &str, seconds: u64, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until = elapsed() + Duration::from_secs(seconds);
        while !is_so(self) {
            lock(&self.ledger).check();
            assert!(elapsed() < until, "in vain: {what}");
            sleep(Duration::from_millis(20)).await;
        }
        tell(|| what.into());
    }
}

impl Process {
    fn new(process: usize, ledger: &SharedLedger) -> Self {
        let number = |runtime| process * (RUNTIMES + 1) + runtime;
        let runtimes: Vec<_> = (0..=RUNTIMES)
            .map(|runtime| Runtime::new(number(runtime)))
            .collect();
        let told = Arc::downgrade(ledger);
        let callback = move |event: &Event| {
            if let Some(ledger) = told.upgrade() {
                lock(&ledger).on_event(event);
            }
        };
        let hook = Hook {
            callback: Some(Arc::new(callback)),
            is_untraced: true,
        };
        let server = Server::simulated(Network { process });
        let real = tokio::runtime::Handle::current();
        let (handle, background) =
            runtimes[0].within(|| background::Handle::new(server, RESPONSE_TIMEOUT, hook, &real));
        lock(ledger).add(Arc::clone(handle.session()), Arc::clone(&runtimes[0]));
        Self {
            locks: Some(Locks::of(handle)),
            background: runtimes[0].spawn(background),
            runtimes,
            tasks: Vec::new(),
        }
    }
}
