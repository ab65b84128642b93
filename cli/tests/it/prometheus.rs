//! A real Prometheus reads the metrics from a node exporter: the alert rules and the queries of the dashboard work.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::Running;
use dlock_testkit::{Server, free_port, skip, wait_for};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Whether a program of the package is installed. If not, the test is skipped.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_installed = found.is_ok_and(|status| status.success());
    if !is_installed {
        skip(&format!(
            "{program} is not installed (Debian's packages are prometheus and prometheus-node-exporter)"
        ));
    }
    is_installed
}

/// The `data` of a reply of Prometheus; null while it does not answer.
fn get(port: u16, path: &str) -> Value {
    let get = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    let reply = get().unwrap_or_default();
    let body = reply.split_once("\r\n\r\n").map_or("null", |(_, body)| body);
    let mut reply: Value = serde_json::from_str(body).unwrap_or_default();
    reply["data"].take()
}

/// Whether a query is valid and has a result now.
fn has_result(port: u16, query: &str) -> bool {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let result = get(port, &format!("/api/v1/query?query={encoded}"))["result"].take();
    result.as_array().is_some_and(|samples| !samples.is_empty())
}

/// The queries of all panels, for all servers.
fn dashboard_queries() -> Vec<String> {
    let text = fs::read_to_string(deploy().join("grafana/dlock.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a query"));
    queries
        .map(|query| query.replace("$server", ".*").replace("$__rate_interval", "1m"))
        .collect()
}

/// The command of the systemd unit, which writes the metrics of a server into a directory.
fn metrics_writer(server: &Server, directory: &Path) -> Command {
    let unit = fs::read_to_string(deploy().join("systemd/dlock-metrics.service")).expect("the unit");
    let script = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")?.strip_suffix('\''))
        .expect("a shell command");
    let tool = Path::new(env!("CARGO_BIN_EXE_dlock"))
        .parent()
        .expect("a directory");
    let path = format!("{}:{}", tool.display(), env::var("PATH").expect("a path"));
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("DLOCK_URL", server.url());
    shell
}

#[test]
fn alert_rules_pass_promtool() {
    if !is_installed("promtool") {
        return;
    }
    for args in [
        ["check", "rules", "dlock.rules.yml"],
        ["test", "rules", "dlock.rules.test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let output = promtool
            .current_dir(deploy().join("prometheus"))
            .args(args)
            .output();
        let output = output.expect("promtool runs");
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn prometheus_scrapes_metrics_answers_dashboard_queries_and_fires_alert() {
    if !is_installed("prometheus") || !is_installed("prometheus-node-exporter") {
        return;
    }
    let server = Server::with("maxmemory 1gb\nmaxmemory-policy allkeys-lru\ndlock.allow-eviction yes");
    let mut client = server.client();
    let (metrics, prometheus) = (free_port(), free_port());
    let directory = TempDir::with_prefix("dlock-prometheus-").expect("a temporary directory");
    let rules = fs::read_to_string(deploy().join("prometheus/dlock.rules.yml")).expect("the rules");
    let config = format!(
        "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
         scrape_configs: [{{job_name: dlock, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n\
         rule_files: [rules.yml]\n"
    );
    fs::write(directory.path().join("prometheus.yml"), config).expect("the directory is writable");
    fs::write(
        directory.path().join("rules.yml"),
        rules.replace("for: 1m", "for: 0s"),
    )
    .expect("the directory is writable");
    let textfiles = directory.path().join("textfiles");
    fs::create_dir(&textfiles).expect("the directory is writable");
    let mut write_metrics = metrics_writer(&server, &textfiles);
    let mut write_metrics = || assert!(write_metrics.status().expect("a shell").success());
    let _exporter = Running::start(
        Command::new("prometheus-node-exporter")
            .args(["--collector.disable-defaults", "--collector.textfile"])
            .arg(format!("--collector.textfile.directory={}", textfiles.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{metrics}")),
    );
    let _prometheus = Running::start(
        Command::new("prometheus")
            .current_dir(&directory)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{prometheus}")),
    );

    write_metrics();
    wait_for("a scrape", || has_result(prometheus, "dlock_up"));
    wait_for("no alert", || {
        get(prometheus, "/api/v1/alerts")["alerts"] == serde_json::json!([])
    });
    wait_for("a result of every query of the dashboard", || {
        client.acquire("job alice 60000");
        let mut bob = server.waiter("job bob 60000 BLOCK 0");
        client.release("job alice");
        bob.granted();
        client.release("job bob");
        // Counts an error.
        let _ = client.call("DLOCK.RELEASE job carol");
        write_metrics();
        dashboard_queries()
            .iter()
            .all(|query| has_result(prometheus, query))
    });

    client.call("CONFIG SET dlock.allow-eviction no").expect("OK");
    write_metrics();
    wait_for("the alert", || {
        let alerts = get(prometheus, "/api/v1/alerts")["alerts"].take();
        alerts.as_array().is_some_and(|alerts| {
            alerts
                .iter()
                .any(|alert| alert["labels"]["alertname"] == "DlockEvictable" && alert["state"] == "firing")
        })
    });
}
