//! Connecting to a cluster, a Unix socket, Sentinels, and with TLS.

use crate::support::terminal::Terminal;
use crate::support::{Running, at, dlock, dlock_at, json, names, on, outcome, tool};
use dlock_testkit::{Cluster, Sentinel, Server, free_port, tls, wait_for};

#[test]
fn any_cluster_node_addresses_the_whole_cluster() {
    let cluster = Cluster::start(3);
    let mut expected: Vec<String> = (0..3).map(|n| cluster.key_on(n, "job")).collect();
    for (n, name) in expected.iter().enumerate() {
        cluster.client(n).acquire(&format!("{name} owner{n} 600000"));
    }
    let elsewhere = expected[2].clone();
    let any = &cluster.nodes[0];
    expected.sort();
    assert_eq!(names(&json(any, &["ls"])), expected);
    assert_eq!(json(any, &["show", &elsewhere])["holders"][0]["owner"], "owner2");
    let url = format!("redis-cluster://127.0.0.1:1,127.0.0.1:{}", any.port());
    tool(&["-u", &url, "show", &elsewhere]).exits(0);
    at(any, &["break", "--yes", &elsewhere]).exits(0);
    let run = ["run", "--try", elsewhere.as_str(), "--", "sh", "-c", "exit 4"];
    at(any, &run).exits(4);
    assert_eq!(
        on(any.port(), &["stats"]).out.matches("contended_locks").count(),
        3
    );
}

#[test]
fn unix_socket_works_as_option_and_url() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("redis.sock");
    let socket = socket.to_str().expect("text");
    let server = Server::with(&format!("unixsocket {socket}"));
    server.client().acquire("by-socket alice 60000");
    for args in [["-s", socket], ["-u", &format!("unix://{socket}")]] {
        tool(&[&args[..], &["ls"]].concat()).shows("by-socket");
        tool(&[&args[..], &["run", "job", "--", "sh", "-c", "exit 3"]].concat()).exits(3);
    }
}

#[test]
fn sentinels_report_the_primary_before_and_after_failover() {
    let mut primary = Server::start();
    let replica = primary.replica();
    let sentinel = Sentinel::of(&primary, 1);
    // The first Sentinel is unreachable.
    let url = format!("redis-sentinel://127.0.0.1:1,127.0.0.1:{}/main", sentinel.port());
    let script = "echo $DLOCK_FENCE; cat";
    let mut job = Running::start(&mut dlock(&[
        "-u", &url, "run", "--lease", "15s", "job", "--", "sh", "-c", script,
    ]));
    let fence = job.line();
    let mut client = primary.client();
    client.acquire("settled alice 600000");
    client.sync();
    drop(client);
    primary.kill();
    wait_for("the lock on the new primary", || {
        let shown = tool(&["-u", &url, "show", "job"]);
        shown.code == 0 && shown.out.contains(&fence) && replica.is_primary()
    });
    job.finish().exits(0);
    let unknown = format!("redis-sentinel://127.0.0.1:{}/other", sentinel.port());
    tool(&["-u", &unknown, "ls"])
        .exits(69)
        .warns("does not know a primary named other");
}

#[test]
fn tls_server_is_verified_by_its_certificate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    tls::write_certificate(directory.path());
    let port = free_port();
    let server = Server::with(&tls::config(directory.path(), port, "no"));
    server.client().acquire("behind-tls alice 600000");
    let authority = tls::certificate(directory.path());
    let authority = authority.to_str().expect("text");
    let (url, port) = (format!("rediss://127.0.0.1:{port}"), port.to_string());
    let by_options = ["--tls", "-h", "127.0.0.1", "-p", &port, "--cacert", authority];
    for how in [&by_options[..], &["-u", &url, "--cacert", authority]] {
        check_list_and_run(how, "behind-tls");
    }
    // The certificate is self-signed.
    tool(&["-u", &url, "ls"]).fails(69, "certificate");
}

#[track_caller]
fn check_list_and_run(how: &[&str], listed: &str) {
    let list = tool(&[how, &["ls"]].concat());
    assert!(list.code == 0 && list.out.contains(listed), "{how:?}: {list:?}");
    let script = ["run", "job", "--", "sh", "-c", "exit 3"];
    tool(&[how, &script].concat()).exits(3);
}

#[test]
fn client_certificate_is_shown_to_every_kind_of_deployment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    tls::write_certificate(directory);
    let [port, node_port, sentinel_port] = [free_port(), free_port(), free_port()];
    let config = |port| tls::config(directory, port, "yes");
    let primary = Server::with(&config(port));
    let _sentinel = Sentinel::start(port, 0, &config(sentinel_port));
    let node = tls::cluster(&config(node_port), "yes");
    let (certificate, key) = (tls::certificate(directory), tls::key(directory));
    let (certificate, key) = (certificate.to_str().expect("text"), key.to_str().expect("text"));
    for (server, url) in [
        (&primary, format!("rediss://127.0.0.1:{port}")),
        (
            &primary,
            format!("rediss-sentinel://127.0.0.1:{sentinel_port}/main"),
        ),
        (&node, format!("rediss://127.0.0.1:{node_port}")),
        (&node, format!("rediss-cluster://127.0.0.1:{node_port}")),
    ] {
        server.client().acquire("held alice 600000");
        let how = [
            "-u",
            &url,
            "--cacert",
            certificate,
            "--cert",
            certificate,
            "--key",
            key,
        ];
        check_list_and_run(&how, "held");
        let of = |command: &[&str]| tool(&[&how[..], command].concat());
        assert!(of(&["show", "held"]).out.contains("alice"), "{url}");
        assert!(of(&["stats", "--prometheus"]).out.contains("dlock_up{"), "{url}");
        of(&["doctor"]).hides("reachability");
        of(&["break", "--yes", "held"]).exits(0);
        tool(&["-u", &url, "--cacert", certificate, "ls"])
            .fails(69, "pass a client certificate with --cert FILE and --key FILE");
    }
}

#[test]
fn sentinel_password_is_separate_from_that_of_the_primary() {
    let primary = Server::start();
    let _replica = primary.replica();
    primary.client().acquire("job alice 600000");
    let sentinel = Sentinel::of(&primary, 1);
    let client = redis::Client::open(("127.0.0.1", sentinel.port())).expect("a valid address");
    let mut connection = client.get_connection().expect("the Sentinel runs");
    redis::cmd("ACL")
        .arg(&["SETUSER", "default", "resetpass", ">secret"])
        .exec(&mut connection)
        .expect("Sentinels have ACLs");
    let url = format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port());
    tool(&["-u", &url, "ls"])
        .exits(77)
        .warns("Sentinel 127.0.0.1")
        .warns("DLOCK_SENTINEL_AUTH");
    tool(&["-u", &url, "--sentinel-pass", "secret", "ls"]).shows("alice");
    let run = ["-u", &url, "run", "other", "--", "sh", "-c", "exit 3"];
    outcome(dlock(&run).env("DLOCK_SENTINEL_AUTH", "secret")).exits(3);
}

#[test]
fn unreachable_cluster_node_is_reported_and_others_are_shown() {
    let mut cluster = Cluster::start(2);
    for n in 0..2 {
        cluster
            .client(n)
            .config_set("cluster-require-full-coverage", "no");
        let name = cluster.key_on(n, "job");
        cluster.client(n).acquire(&format!("{name} owner{n} 600000"));
    }
    let dead = format!("127.0.0.1:{}", cluster.nodes[1].port());
    cluster.nodes[1].kill();
    let at = |args: &[&str]| at(&cluster.nodes[0], args);
    at(&["ls"])
        .exits(69)
        .shows("owner0")
        .hides("owner1")
        .warns(&format!("cannot connect to {dead}"));
    let stats = at(&["stats"]).exits(69);
    assert_eq!(stats.out.matches("contended_locks").count(), 1, "{stats:?}");
    let metrics = at(&["stats", "--prometheus"])
        .exits(69)
        .shows(&format!("dlock_up{{server=\"{dead}\"}} 0"));
    assert_eq!(metrics.out.matches("dlock_locks{").count(), 1, "{metrics:?}");
    let terminal = Terminal::start(&dlock_at(&cluster.nodes[0], &["top", "--every", "50ms"]), 24, 110);
    terminal.wait_for("owner0");
    terminal.wait_for(&format!("cannot connect to {dead}"));
    terminal.exits("q", 0);
}
