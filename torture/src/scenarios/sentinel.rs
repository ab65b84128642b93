//! A Sentinel that promotes a replica when the primary has died.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use dlock_testkit::{Client, wait_for};
use tempfile::TempDir;

use super::Job;
use super::group::Group;
use crate::clients::{Connection, Crew, Habits};
use crate::history::History;

const SERVERS: usize = 3;
const WORKERS: usize = 6;
const LEASE_MS: u64 = 500;

/// The primary is killed, a Sentinel promotes a replica, with a grace.
pub fn failovers(job: &mut Job) -> Vec<History> {
    let mut group = Group::start(SERVERS, &format!("dlock.failover-grace-ms {LEASE_MS}"));
    let habits = Habits {
        keeps_name: true,
        ..Habits::mixed(LEASE_MS)
    };
    let crew = Crew::hire(WORKERS, "w", &group.route, &group.journal, &habits, &mut job.rng);
    for _ in 0..job.count {
        // Each round has a Sentinel of its own, which knows the servers as they are now.
        let sentinel = Sentinel::watch(group.server(group.primary).port());
        sentinel.wait_until_it_knows(SERVERS - 1);
        job.pause(LEASE_MS..=LEASE_MS * 2);
        group.kill_primary();
        wait_for("the promotion by the Sentinel", || group.new_primary().is_some());
        let new = group.new_primary().expect("it was there a moment ago");
        let dead = group.send_clients_to(new);
        drop(sentinel);
        group.revive(dead);
        group.reunite();
    }
    crew.dismiss();
    vec![group.settle()]
}

/// A Sentinel that decides alone. Dropped, it is killed.
struct Sentinel {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Sentinel {
    fn watch(primary: u16) -> Self {
        let folder = TempDir::with_prefix("dlock-sentinel-").expect("a temporary folder can be made");
        let port = free_port();
        let config = folder.path().join("sentinel.conf");
        let lines = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor group 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds group 500\nsentinel failover-timeout group 5000\n",
            folder.path().display()
        );
        fs::write(&config, lines).expect("a temporary folder is writable");
        let program = env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        let process = Command::new(&program)
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        wait_for("the Sentinel", || Connection::open(port).is_some());
        Self {
            process,
            port,
            _folder: folder,
        }
    }

    fn wait_until_it_knows(&self, replicas: usize) {
        let mut client = Client::connect(&format!("redis://127.0.0.1:{}/", self.port));
        wait_for("a Sentinel that knows the replicas", || {
            let info = client.server_info("sentinel", "master0");
            info.contains("status=ok") && info.contains(&format!("slaves={replicas}"))
        });
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the system has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    address.port()
}
