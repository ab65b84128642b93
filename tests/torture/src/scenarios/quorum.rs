//! Independent servers, and clients of a lock on a majority of them, at two sites with networks of their own.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Proxy, Server, WallClock, wait_for};
use redis_dlock_quorum as quorum;
use tokio::runtime::{Builder, Runtime};

use super::{ScenarioRun, network};
use crate::clients::{Gate, QuorumHolder};
use crate::history::{History, Recorder};
use crate::servers;

const SITES: usize = 2;
const HOLDERS_PER_SITE: usize = 3;
const LEASE_MS: u64 = 500;
const NODE_TIMEOUT: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_secs(1);

/// `appendfsync always`: a restart forgets nothing.
pub const DURABLE: Setup = Setup {
    servers: 5,
    config: "appendonly yes\nappendfsync always",
    faults: Faults::All { clock_off_s: 0 },
    same_order: true,
};
/// Three servers, which the sites name in different orders.
pub const THREE_SERVERS: Setup = Setup {
    servers: 3,
    same_order: false,
    ..DURABLE
};
/// Restarts forget everything, followed by a grace period. Clocks are a second off.
pub const NO_DATA_WITH_GRACE: Setup = Setup {
    // Longer than the lease, and than the clocks are apart.
    config: "dlock.startup-grace-ms 3000",
    faults: Faults::All { clock_off_s: 1 },
    ..DURABLE
};
/// Restarts forget everything, without a grace period.
pub const NO_DATA: Setup = Setup {
    config: "",
    faults: Faults::Restarts { set_back_s: 0 },
    ..DURABLE
};
/// A grace period that covers the lease, but not by how much the clocks are set back.
pub const CLOCKS_SET_BACK: Setup = Setup {
    config: "dlock.startup-grace-ms -1",
    faults: Faults::Restarts { set_back_s: 3_600 },
    ..DURABLE
};

pub fn play(run: &mut ScenarioRun, setup: Setup) -> Vec<History> {
    let mut quorum = Quorum::start(run, setup);
    // The servers may begin with a grace period.
    quorum.wait_for_grant();
    for _ in 0..run.count {
        run.pause(5..=LEASE_MS / 5);
        quorum.one_fault(run);
    }
    quorum.finish()
}

pub struct Setup {
    servers: usize,
    config: &'static str,
    faults: Faults,
    /// Whether all sites name the servers in the same order, as they should.
    same_order: bool,
}

/// What happens to servers, networks and clients.
#[derive(Clone, Copy)]
enum Faults {
    /// All kinds. One to all servers restart, each with a clock that is off by at most so much.
    All { clock_off_s: i64 },
    /// All servers restart, with clocks behind those before.
    Restarts { set_back_s: i64 },
}

impl Faults {
    /// Until all have restarted, a lease runs on.
    fn lease_ms(self) -> u64 {
        match self {
            Self::All { .. } => LEASE_MS,
            Self::Restarts { .. } => 6 * LEASE_MS,
        }
    }
}

struct Quorum {
    /// Dropped before the servers.
    sites: Vec<Site>,
    servers: Vec<(Server, WallClock)>,
    faults: Faults,
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
        let faults = setup.faults;
        let config = format!(
            "dlock.quorum yes\ndlock.max-lease-ms {}\n{}",
            faults.lease_ms(),
            setup.config
        );
        let server = |_| {
            let clock = WallClock::new();
            (Server::with_environment(&config, clock.environment()), clock)
        };
        let mut quorum = Self {
            sites: Vec::new(),
            servers: (0..setup.servers).map(server).collect(),
            faults,
            recorder: Recorder::default(),
            stop: Arc::default(),
        };
        quorum.sites = (0..SITES)
            .map(|site| {
                let turned = if setup.same_order { 0 } else { site };
                Site::open(&quorum.servers, turned, faults.lease_ms())
            })
            .collect();
        for number in 0..SITES * HOLDERS_PER_SITE {
            quorum.start_holder(number, run);
        }
        quorum
    }

    fn start_holder(&mut self, number: usize, run: &mut ScenarioRun) {
        let site = &mut self.sites[number % SITES];
        let (gate, stop) = (Gate::default(), Arc::clone(&self.stop));
        let holder = QuorumHolder {
            lock: site.lock.clone(),
            runtime: Arc::clone(&site.runtime),
            recorder: self.recorder.clone(),
            rng: run.rng.fork(),
            gate: gate.clone(),
            lease_ms: self.faults.lease_ms(),
        };
        let thread = thread::spawn(move || holder.run(&stop));
        site.holders.push((gate, thread));
    }

    fn one_fault(&mut self, run: &mut ScenarioRun) {
        match (self.faults, run.rng.u8(..12)) {
            (Faults::Restarts { set_back_s }, _) => {
                self.wait_for_grant();
                // One of the next holders takes its time.
                run.pause(LEASE_MS / 4..=LEASE_MS);
                let set_back_s = set_back_s * self.recorder.lock().events.len() as i64;
                let all = (0..self.servers.len()).collect();
                self.restart(run, all, -set_back_s..=-set_back_s);
            }
            (Faults::All { clock_off_s }, 0..3) => {
                let some = self.some_servers(run);
                self.restart(run, some, -clock_off_s..=clock_off_s);
            }
            (Faults::All { .. }, 3) => self.stop_server(run),
            (_, 4) => self.pause_holder(run),
            (_, 5 | 6) => self.split(run),
            (_, 7 | 8) => self.cut_readers(run),
            _ => {
                let (site, server) = (run.rng.usize(..SITES), self.any_server(run));
                network::one_fault(run, &self.sites[site].proxies[server], &self.recorder);
            }
        }
    }

    fn restart(&mut self, run: &mut ScenarioRun, killed: Vec<usize>, clock_off_s: RangeInclusive<i64>) {
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
        self.recorder.event("a holder is paused");
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
