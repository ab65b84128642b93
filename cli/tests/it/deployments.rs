//! The deployments of `deploy/`, started from its very files: found good, and one of them sees a failover.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{dlock_at, is_running, outcome};
use dlock_testkit::{Server, module_path, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tool is a folder of the project")
}

/// A script that runs servers until it is interrupted. Dropped, it is interrupted.
struct Deployment {
    script: Child,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Deployment {
    /// Starts a script of the project. `first` is where free ports are looked for.
    fn start(script: &str, first: u16, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut script = Command::new(project().join("deploy").join(script))
            .args([env!("CARGO_BIN_EXE_dlock").as_ref(), module_path().as_os_str()])
            .arg(folder.path())
            .arg(free_ports(first).to_string())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script runs");
        let output = BufReader::new(script.stdout.take().expect("a pipe"));
        Self {
            script,
            output,
            folder,
        }
    }

    /// What it tells until all runs.
    #[track_caller]
    fn told_until_ready(&mut self) -> String {
        let mut told = String::new();
        while !told.contains("== Ready") {
            let length = self.output.read_line(&mut told).expect("text");
            assert!(length > 0, "the script has ended:\n{told}");
        }
        told
    }

    fn pids(&self) -> Vec<String> {
        let servers = fs::read_dir(self.folder.path().join("servers")).expect("a folder of servers");
        let file = |server: PathBuf| fs::read_to_string(server.join("pid")).expect("the number of a process");
        servers
            .map(|server| file(server.expect("an entry").path()).trim().to_owned())
            .collect()
    }

    /// As Ctrl-C does, but by the signal that no shell has ignored for what it starts in the background.
    fn interrupt(&self) {
        kill(Pid::from_raw(self.script.id() as i32), Signal::SIGTERM).expect("it runs");
    }

    fn has_ended(&mut self) -> bool {
        self.script
            .try_wait()
            .expect("the state of a child can be read")
            .is_some()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.interrupt();
            // It ends its servers first.
            let _ = self.script.wait();
        }
    }
}

/// The first of six ports that are free, and so are those for a cluster's bus, 10000 above. They lie below
/// those that the system gives to clients.
fn free_ports(first: u16) -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = first + (std::process::id() % 150) as u16 * 10;
    let mut candidates = (start..first + 2000).step_by(6);
    candidates
        .find(|&base| (base..base + 6).all(|port| is_free(port) && is_free(port + 10_000)))
        .expect("some ports are free")
}

#[test]
fn single_server_configuration_has_no_warnings() {
    let file = fs::read_to_string(project().join("deploy/single/redis.conf")).expect("the file is there");
    // Those that the harness has of its own.
    let own = ["loadmodule ", "port ", "bind ", "dir "];
    let (replaced, lines): (Vec<&str>, Vec<&str>) = file
        .lines()
        .partition(|line| own.iter().any(|word| line.starts_with(word)));
    assert_eq!(replaced.len(), own.len(), "{replaced:?}");
    let server = Server::with(&lines.join("\n"));
    let told = outcome(&mut dlock_at(&server, &["doctor"]));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.contains("appendfsync always"), "{told:?}");
}

#[test]
fn cluster_script_starts_healthy_cluster_and_stops_it() {
    let mut cluster = Deployment::start("run-cluster", 20_000, &[("LEASE_MS", "5000")]);
    let told = cluster.told_until_ready();
    assert_eq!(told.matches("(primary, ").count(), 3, "{told}");
    assert_eq!(told.matches("(replica, ").count(), 3, "{told}");
    assert!(told.contains("0 problems, 0 warnings"), "{told}");
    let pids = cluster.pids();
    assert_eq!(pids.len(), 6);
    assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    cluster.interrupt();
    wait_for("the end of the script", || cluster.has_ended());
    assert!(!pids.iter().any(|pid| is_running(pid)), "{pids:?}");
}

#[test]
fn sentinel_script_keeps_lock_through_failover() {
    let short = [("LEASE_MS", "8000"), ("DOWN_AFTER_MS", "2000")];
    let mut sentinels = Deployment::start("run-sentinel", 22_000, &short);
    let told = sentinels.told_until_ready();
    // Before the failover and after it.
    assert_eq!(told.matches("0 problems, 0 warnings").count(), 2, "{told}");
    assert_eq!(told.matches("\nalice\n").count(), 2, "{told}");
    assert!(told.contains("\nGRACE "), "{told}");
    let fences: Vec<u64> = told
        .lines()
        .filter_map(|line| line.strip_prefix("fence ")?.parse().ok())
        .collect();
    assert_eq!(fences.len(), 2, "{told}");
    assert!(fences[0] < fences[1], "{told}");
}

#[test]
fn servers_left_by_killed_script_can_be_stopped() {
    let mut cluster = Deployment::start("run-cluster", 24_000, &[("LEASE_MS", "5000")]);
    cluster.told_until_ready();
    let pids = cluster.pids();
    cluster.script.kill().expect("it runs");
    wait_for("the end of the script", || cluster.has_ended());
    assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    let ended = Command::new(project().join("deploy/end-deployment"))
        .arg(cluster.folder.path())
        .output()
        .expect("the script runs");
    assert!(ended.status.success(), "{ended:?}");
    wait_for("the end of the servers", || {
        !pids.iter().any(|pid| is_running(pid))
    });
}
