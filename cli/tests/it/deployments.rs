//! Starts the deployments of `deploy/` from its files, and checks them with `dlock doctor`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use crate::support::{at, is_running};
use dlock_testkit::{Server, free_ports_with_bus, module_path, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tool is a directory of the project")
}

/// A script that runs servers until it is interrupted. Interrupted when dropped.
struct Deployment {
    script: Child,
    output: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Deployment {
    /// Starts a script of the project, with six ports.
    fn start(script: &str, environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut script = Command::new(project().join("deploy").join(script))
            .args([env!("CARGO_BIN_EXE_dlock").as_ref(), module_path().as_os_str()])
            .arg(directory.path())
            .arg(free_ports_with_bus(6).to_string())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script runs");
        let output = BufReader::new(script.stdout.take().expect("a pipe"));
        Self {
            script,
            output,
            directory,
        }
    }

    /// The output of the script until all servers run.
    #[track_caller]
    fn output_until_ready(&mut self) -> String {
        let mut output = String::new();
        while !output.contains("== Ready") {
            let length = self.output.read_line(&mut output).expect("text");
            assert!(length > 0, "the script has ended:\n{output}");
        }
        output
    }

    fn pids(&self) -> Vec<String> {
        let servers = fs::read_dir(self.directory.path().join("servers")).expect("a directory of servers");
        let file = |server: PathBuf| fs::read_to_string(server.join("pid")).expect("the number of a process");
        servers
            .map(|server| file(server.expect("an entry").path()).trim().to_owned())
            .collect()
    }

    /// Sends TERM. Unlike INT, shells do not ignore it in background processes.
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
            // It stops its servers before it exits.
            let _ = self.script.wait();
        }
    }
}

fn assert_two_rising_fences(output: &str) {
    let fences: Vec<u64> = output
        .lines()
        .filter_map(|line| line.strip_prefix("fence ")?.parse().ok())
        .collect();
    assert_eq!(fences.len(), 2, "{output}");
    assert!(fences[0] < fences[1], "{output}");
}

#[test]
fn single_server_configuration_has_no_warnings() {
    let file = fs::read_to_string(project().join("deploy/single/redis.conf")).expect("the file is there");
    // Set by the test server itself.
    let own = ["loadmodule ", "port ", "bind ", "dir "];
    let (replaced, lines): (Vec<&str>, Vec<&str>) = file
        .lines()
        .partition(|line| own.iter().any(|word| line.starts_with(word)));
    assert_eq!(replaced.len(), own.len(), "{replaced:?}");
    let server = Server::with(&lines.join("\n"));
    at(&server, &["doctor"]).exits(0).shows("appendfsync always");
}

#[test]
fn port_in_use_is_reported_before_anything_is_built() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port();
    for target in ["run", "sentinel", "quorum"] {
        let mut make = Command::new("make");
        make.args(["--no-print-directory", target, &format!("PORT={port}")]);
        // Without cargo: what builds would fail first.
        make.env("PATH", "/usr/bin:/bin");
        let output = make.current_dir(project()).output().expect("make runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.starts_with(&format!("{target}: port {port} is in use")),
            "{text}"
        );
        assert!(!output.status.success());
    }
}

#[test]
fn cluster_script_starts_healthy_cluster_and_stops_it() {
    let mut cluster = Deployment::start("run-cluster", &[("LEASE_MS", "5000")]);
    let output = cluster.output_until_ready();
    assert_eq!(output.matches("(primary, ").count(), 3, "{output}");
    assert_eq!(output.matches("(replica, ").count(), 3, "{output}");
    assert!(output.contains("0 problems, 0 warnings"), "{output}");
    let pids = cluster.pids();
    assert_eq!(pids.len(), 6);
    assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    cluster.interrupt();
    wait_for("the end of the script", || cluster.has_ended());
    assert!(!pids.iter().any(|pid| is_running(pid)), "{pids:?}");
}

#[test]
fn sentinel_script_keeps_lock_through_failover() {
    // Longer than min-replicas-max-lag.
    let short = [("LEASE_MS", "12000"), ("DOWN_AFTER_MS", "4000")];
    let mut sentinels = Deployment::start("run-sentinel", &short);
    let output = sentinels.output_until_ready();
    // Before the failover and after it.
    assert_eq!(output.matches("0 problems, 0 warnings").count(), 2, "{output}");
    assert_eq!(output.matches("\nalice\n").count(), 2, "{output}");
    assert!(output.contains("\nGRACE "), "{output}");
    assert_two_rising_fences(&output);
}

#[test]
fn servers_left_by_killed_script_can_be_stopped() {
    let mut cluster = Deployment::start("run-cluster", &[("LEASE_MS", "5000")]);
    cluster.output_until_ready();
    let pids = cluster.pids();
    cluster.script.kill().expect("it runs");
    wait_for("the end of the script", || cluster.has_ended());
    assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    let ended = Command::new(project().join("deploy/end-deployment"))
        .arg(cluster.directory.path())
        .output()
        .expect("the script runs");
    assert!(ended.status.success(), "{ended:?}");
    wait_for("the end of the servers", || {
        !pids.iter().any(|pid| is_running(pid))
    });
}

#[test]
fn quorum_script_keeps_lock_through_loss_of_two_servers() {
    let mut quorum = Deployment::start("run-quorum", &[("LEASE_MS", "3000")]);
    let output = quorum.output_until_ready();
    assert_eq!(output.matches("0 problems, 0 warnings").count(), 2, "{output}");
    assert_two_rising_fences(&output);
}

/// The shell commands of the health checks of a file.
fn probes(file: &str) -> Vec<String> {
    let text = fs::read_to_string(project().join("deploy").join(file)).expect("the file is there");
    let lines = text.lines().map(str::trim);
    let checks =
        lines.filter(|line| line.contains("-cli") && line.contains("ping") && !line.starts_with('#'));
    let command = |line: &str| {
        // As in a JSON string.
        let line = line.replace("\\\"", "\"");
        let start = line.find("test \"$").unwrap_or_else(|| panic!("{line}"));
        let end = line.find("PONG").unwrap_or_else(|| panic!("{line}")) + "PONG".len();
        line[start..end].replace("$$", "$").replace(" -p 26379", "")
    };
    checks.map(command).collect()
}

/// Whether a health check succeeds at a server that gives this reply.
fn succeeds(probe: &str, reply: &'static str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = write!(client, "{reply}\r\n");
        }
    });
    let probe = probe.replace("valkey-cli", &format!("redis-cli -p {port}"));
    let mut shell = Command::new("sh");
    let ended = shell.args(["-c", &probe]).env_remove("REDISCLI_AUTH").output();
    ended.expect("a shell").status.success()
}

#[test]
fn health_checks_of_containers_fail_on_errors() {
    let files = [
        "docker/Dockerfile",
        "docker/compose.yaml",
        "kubernetes/server.yaml",
        "kubernetes/valkey-chart.yaml",
    ];
    for file in files {
        let probes = probes(file);
        assert!(!probes.is_empty(), "{file}");
        for probe in probes {
            assert!(succeeds(&probe, "+PONG"), "{file}: {probe}");
            for error in ["-NOAUTH Authentication required.", "-LOADING Redis is loading"] {
                assert!(!succeeds(&probe, error), "{file}: {probe}");
            }
        }
    }
}
