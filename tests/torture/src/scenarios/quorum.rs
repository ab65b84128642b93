//! Independent servers, and clients of a lock on a majority of them, at two sites with networks of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Proxy, Server, WallClock, wait_for};
use redis_dlock_quorum as quorum;
use tokio::runtime::{Builder, Runtime};

use super::{ScenarioRun, network};
use crate::clients::{Fencing, Gate, QuorumHolder, Store};
use crate::history::{History, Recorder};
use crate::servers;

const SITES: usize = 2;
const HOLDERS_PER_SITE: u64 = 3;
/// Elements of each holder.
const ELEMENTS: u64 = 1_000_000;
const LEASE_MS: u64 = 500;
const NODE_TIMEOUT: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_secs(1);

/// `appendfsync always`: a restart forgets nothing.
const DURABLE: Setup = Setup {
    servers: 5,
    config: "appendonly yes\nappendfsync always",
    restarts: Restarts::OfSome { clock_off_s: 0 },
    same_order: true,
};
/// Restarts forget everything, followed by a grace period. Clocks are a second off.
const EMPTY_WITH_GRACE: Setup = Setup {
    // Longer than the lease, and than the clocks are apart.
    config: "dlock.startup-grace-ms 3000",
    restarts: Restarts::OfSome { clock_off_s: 1 },
    ..DURABLE
};

pub fn durable(run: &mut ScenarioRun) -> Vec<History> {
    play(run, DURABLE)
}

/// Three servers, which the sites name in different orders.
pub fn three_servers(run: &mut ScenarioRun) -> Vec<History> {
    let same_order = false;
    play(
        run,
        Setup {
            servers: 3,
            same_order,
            ..DURABLE
        },
    )
}

pub fn no_data_with_grace(run: &mut ScenarioRun) -> Vec<History> {
    play(run, EMPTY_WITH_GRACE)
}

/// Seven servers, which the sites name in different orders.
pub fn seven_servers(run: &mut ScenarioRun) -> Vec<History> {
    let same_order = false;
    play(
        run,
        Setup {
            servers: 7,
            same_order,
            ..EMPTY_WITH_GRACE
        },
    )
}

/// Restarts forget everything, without a grace period.
pub fn no_data(run: &mut ScenarioRun) -> Vec<History> {
    let restarts = Restarts::OfAll { set_back_s: 0 };
    play(
        run,
        Setup {
            config: "",
            restarts,
            ..DURABLE
        },
    )
}

/// A grace period that covers the lease, but not by how much the clocks are set back.
pub fn clocks_set_back(run: &mut ScenarioRun) -> Vec<History> {
    let restarts = Restarts::OfAll { set_back_s: 3_600 };
    play(
        run,
        Setup {
            config: "dlock.startup-grace-ms -1",
            restarts,
            ..DURABLE
        },
    )
}

fn play(run: &mut ScenarioRun, setup: Setup) -> Vec<History> {
    let mut quorum = Quorum::start(run, setup);
    // The servers may begin with a grace period.
    quorum.wait_for_grant();
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS / 5);
        quorum.one_fault(run);
    }
    quorum.finish()
}

struct Setup {
    servers: usize,
    config: &'static str,
    restarts: Restarts,
    /// Whether all sites name the servers in the same order, as they should.
    same_order: bool,
}

/// Which servers restart, and what happens to their clocks.
#[derive(Clone, Copy)]
enum Restarts {
    /// One to all, each with a clock that is off by at most so much.
    OfSome { clock_off_s: i64 },
    /// All, which is the only fault, with clocks behind those before.
    OfAll { set_back_s: i64 },
}

impl Restarts {
    /// Until all have restarted, a lease runs on.
    fn lease_ms(self) -> u64 {
        match self {
            Self::OfSome { .. } => LEASE_MS,
            Self::OfAll { .. } => 6 * LEASE_MS,
        }
    }
}

struct Quorum {
    /// Dropped before the servers.
    sites: Vec<Site>,
    servers: Vec<(Server, WallClock)>,
    restarts: Restarts,
    store: Server,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
}

/// Clients with the same network, connections, and view of which servers are down.
struct Site {
    proxies: Vec<Proxy>,
    lock: quorum::Lock,
    runtime: Arc<Runtime>,
    holders: Vec<(Gate, JoinHandle<()>)>,
}

impl Quorum {
    fn start(run: &mut ScenarioRun, setup: Setup) -> Self {
        let restarts = setup.restarts;
        let config = format!(
            "dlock.quorum yes\ndlock.max-lease-ms {}\n{}",
            restarts.lease_ms(),
            setup.config
        );
        let server = |_| {
            let clock = WallClock::new();
            (Server::with_environment(&config, clock.environment()), clock)
        };
        let mut quorum = Self {
            sites: Vec::new(),
            servers: (0..setup.servers).map(server).collect(),
            restarts,
            store: Server::without_module(""),
            recorder: Recorder::default(),
            stop: Arc::default(),
        };
        quorum.sites = (0..SITES)
            .map(|site| {
                let turned = if setup.same_order { 0 } else { site };
                Site::open(&quorum.servers, turned, restarts.lease_ms())
            })
            .collect();
        for number in 0..SITES as u64 * HOLDERS_PER_SITE {
            quorum.start_holder(number, run);
        }
        quorum
    }

    fn start_holder(&mut self, number: u64, run: &mut ScenarioRun) {
        let site = &mut self.sites[number as usize % SITES];
        let (gate, stop) = (Gate::default(), Arc::clone(&self.stop));
        let holder = QuorumHolder {
            lock: site.lock.clone(),
            runtime: Arc::clone(&site.runtime),
            store: Store::open(self.store.port(), Fencing::On),
            recorder: self.recorder.clone(),
            rng: run.rng.fork(),
            gate: gate.clone(),
            lease_ms: self.restarts.lease_ms(),
            next: number * ELEMENTS,
        };
        let thread = thread::spawn(move || holder.run(&stop));
        site.holders.push((gate, thread));
    }

    fn one_fault(&mut self, run: &mut ScenarioRun) {
        let only_restarts = matches!(self.restarts, Restarts::OfAll { .. });
        match run.rng.u8(..12) {
            _ if only_restarts => {
                self.wait_for_grant();
                // One of the next holders takes its time.
                run.pause(LEASE_MS / 4..=LEASE_MS);
                self.restart_some(run);
            }
            0..3 => self.restart_some(run),
            3 => self.stop_server(run),
            4 => self.pause_holder(run),
            5 | 6 => self.split(run),
            7 | 8 => self.cut_readers(run),
            _ => {
                let (site, server) = (run.rng.usize(..SITES), self.any_server(run));
                network::one_fault(run, &self.sites[site].proxies[server], &self.recorder);
            }
        }
    }

    fn restart_some(&mut self, run: &mut ScenarioRun) {
        let (killed, clock_off_s) = match self.restarts {
            Restarts::OfSome { clock_off_s } => (self.some_servers(run), -clock_off_s..=clock_off_s),
            Restarts::OfAll { set_back_s } => {
                let faults = self.recorder.lock().events.len() as i64;
                (
                    (0..self.servers.len()).collect(),
                    -set_back_s * faults..=-set_back_s * faults,
                )
            }
        };
        self.recorder.event(format!("kill -9 and restart of {killed:?}"));
        killed.iter().for_each(|n| self.servers[*n].0.kill());
        run.pause(1..=LEASE_MS / 5);
        thread::scope(|scope| {
            let servers = self.servers.iter_mut().enumerate();
            for (_, (server, clock)) in servers.filter(|(n, _)| killed.contains(n)) {
                clock.set(run.rng.i64(clock_off_s.clone()));
                scope.spawn(|| server.start_again());
            }
        });
    }

    /// Since the last fault.
    fn wait_for_grant(&self) {
        wait_for("a lock to be granted again", || {
            let history = self.recorder.lock();
            let since = history.events.last().map_or(0, |event| event.at);
            history.ops.last().is_some_and(|op| op.sent > since)
        });
    }

    fn stop_server(&self, run: &mut ScenarioRun) {
        let n = self.any_server(run);
        self.recorder.event(format!("SIGSTOP of {n} for a moment"));
        self.servers[n].0.stop();
        run.pause(1..=LEASE_MS * 2);
        self.servers[n].0.resume();
    }

    fn pause_holder(&self, run: &mut ScenarioRun) {
        let holders = &self.sites[run.rng.usize(..SITES)].holders;
        let (gate, _) = &holders[run.rng.usize(..holders.len())];
        self.recorder.event("a holder is paused between read and write");
        gate.close();
        run.pause(LEASE_MS / 2..=LEASE_MS * 3);
        gate.open();
    }

    fn split(&self, run: &mut ScenarioRun) {
        let (site, lost) = (run.rng.usize(..SITES), self.some_servers(run));
        self.recorder.event(format!("site {site} is split from {lost:?}"));
        let proxies: Vec<&Proxy> = lost.iter().map(|n| &self.sites[site].proxies[*n]).collect();
        for proxy in &proxies {
            proxy.refuse(true);
            proxy.cut();
        }
        run.pause(1..=LEASE_MS * 2);
        proxies.iter().for_each(|proxy| proxy.refuse(false));
    }

    /// Closes the connections on which processes read their grants.
    fn cut_readers(&self, run: &mut ScenarioRun) {
        let cut = self.some_servers(run);
        self.recorder
            .event(format!("CLIENT KILL of the readers at {cut:?}"));
        for n in cut {
            let mut admin = self.servers[n].0.client();
            let list: String = admin.ask("CLIENT LIST");
            let readers = list.lines().filter(|line| line.contains(" cmd=dlock.grants "));
            let ids = readers.filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
            for id in ids {
                // It may have disconnected.
                let _ = admin.call(&format!("CLIENT KILL ID {id}"));
            }
        }
    }

    fn any_server(&self, run: &mut ScenarioRun) -> usize {
        run.rng.usize(..self.servers.len())
    }

    /// The first one more often than others.
    fn some_servers(&self, run: &mut ScenarioRun) -> Vec<usize> {
        let all = 0..self.servers.len();
        let mut some: Vec<usize> = all.filter(|_| run.rng.u8(..3) == 0).collect();
        if some.first() != Some(&0) && run.rng.bool() {
            some.insert(0, 0);
        }
        some
    }

    fn finish(mut self) -> Vec<History> {
        self.sites.iter().for_each(Site::heal);
        self.stop.store(true, Ordering::Relaxed);
        self.sites.iter_mut().for_each(Site::finish);
        // Their inboxes end a few seconds later.
        self.sites.clear();
        let stored = Store::open(self.store.port(), Fencing::Off).read(0);
        self.recorder.lock().stored = stored;
        for (server, _) in &mut self.servers {
            servers::record_final_state(server, &self.recorder);
        }
        vec![self.recorder.history()]
    }
}

impl Site {
    /// The servers are named from this one on.
    fn open(servers: &[(Server, WallClock)], first: usize, lease_ms: u64) -> Self {
        let proxies: Vec<Proxy> = servers
            .iter()
            .map(|(server, _)| Proxy::to(server.port()))
            .collect();
        let mut urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
        urls.rotate_left(first);
        let settings = quorum::Settings::default().node_timeout(NODE_TIMEOUT);
        let locks = quorum::Locks::with(urls.iter().map(String::as_str), settings).expect("valid addresses");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self {
            proxies,
            lock: locks
                .lock("door")
                .lease(Duration::from_millis(lease_ms))
                .timeout(WAIT),
            runtime: Arc::new(runtime.expect("a runtime can be started")),
            holders: Vec::new(),
        }
    }

    fn heal(&self) {
        self.proxies.iter().for_each(network::heal);
    }

    /// Ends the holders. Then a lock is granted again, for all that had happened.
    fn finish(&mut self) {
        for (_, thread) in self.holders.drain(..) {
            thread.join().expect("holders do not panic");
        }
        let lock = self.lock.clone().timeout(Duration::from_secs(60));
        let guard = self
            .runtime
            .block_on(lock.acquire())
            .expect("the servers are back");
        let _ = self.runtime.block_on(guard.release());
    }
}
