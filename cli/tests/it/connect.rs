//! Connecting to a cluster, a Unix socket, Sentinels, and with TLS.

use std::fs;
use std::net::TcpListener;

use crate::support::terminal::Terminal;
use crate::support::{Running, dlock, dlock_at, dlock_on, json, names, outcome};
use dlock_testkit::{Cluster, Sentinel, Server, wait_for};

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
    assert_eq!(outcome(&mut dlock(&["-u", &url, "show", &elsewhere])).code, 0);
    assert_eq!(
        outcome(&mut dlock_at(any, &["break", "--yes", &elsewhere])).code,
        0
    );
    let run = ["run", "--try", elsewhere.as_str(), "--", "sh", "-c", "exit 4"];
    assert_eq!(outcome(&mut dlock_at(any, &run)).code, 4);
    assert_eq!(
        outcome(&mut dlock_on(any.port(), &["stats"]))
            .out
            .matches("waiters")
            .count(),
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
        let listed = outcome(&mut dlock(&[&args[..], &["ls"]].concat()));
        assert!(listed.out.contains("by-socket"), "{listed:?}");
        let run = outcome(&mut dlock(
            &[&args[..], &["run", "job", "--", "sh", "-c", "exit 3"]].concat(),
        ));
        assert_eq!(run.code, 3, "{run:?}");
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
        let shown = outcome(&mut dlock(&["-u", &url, "show", "job"]));
        shown.code == 0 && shown.out.contains(&fence) && role(&replica) == "master"
    });
    job.close_input();
    assert_eq!(job.end().code, 0);
    let unknown = format!("redis-sentinel://127.0.0.1:{}/other", sentinel.port());
    let refused = outcome(&mut dlock(&["-u", &unknown, "ls"]));
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(
        refused.err.contains("does not know a primary named other"),
        "{refused:?}"
    );
}

/// Reconnects, since a promotion closes connections.
fn role(server: &Server) -> String {
    let client = redis::Client::open(("127.0.0.1", server.port())).expect("the address is well formed");
    let role = client
        .get_connection()
        .and_then(|mut connection| redis::cmd("ROLE").query(&mut connection));
    role.map_or(
        String::new(),
        |(role, ..): (String, redis::Value, redis::Value)| role,
    )
}

#[test]
fn tls_server_is_verified_by_its_certificate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    fs::write(&certificate, own.cert.pem()).expect("a file");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a file");
    // May be taken by another process meanwhile, which is unlikely.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    let server = Server::with(&format!(
        "tls-port {port}\ntls-cert-file {0}\ntls-key-file {1}\ntls-ca-cert-file {0}\ntls-auth-clients no",
        certificate.display(),
        key.display()
    ));
    server.client().acquire("behind-tls alice 600000");
    let port = port.to_string();
    let authority = certificate.to_str().expect("text");
    let by_options = ["--tls", "-h", "127.0.0.1", "-p", &port, "--cacert", authority];
    let url = format!("rediss://127.0.0.1:{port}");
    for how in [&by_options[..], &["-u", &url, "--cacert", authority]] {
        let listed = outcome(&mut dlock(&[how, &["ls"]].concat()));
        assert!(listed.out.contains("behind-tls"), "{listed:?}");
        let run = outcome(&mut dlock(
            &[how, &["run", "job", "--", "sh", "-c", "exit 3"]].concat(),
        ));
        assert_eq!(run.code, 3, "{run:?}");
    }
    // The certificate is self-signed.
    let refused = outcome(&mut dlock(&["-u", &url, "ls"]));
    assert_eq!((refused.code, refused.out.as_str()), (69, ""), "{refused:?}");
    assert!(refused.err.contains("certificate"), "{refused:?}");
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
    let refused = outcome(&mut dlock(&["-u", &url, "ls"]));
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(
        refused.err.contains("Sentinel 127.0.0.1") && refused.err.contains("DLOCK_SENTINEL_AUTH"),
        "{refused:?}"
    );
    let listed = outcome(&mut dlock(&["-u", &url, "--sentinel-pass", "secret", "ls"]));
    assert!(listed.out.contains("alice"), "{listed:?}");
    let run = ["-u", &url, "run", "other", "--", "sh", "-c", "exit 3"];
    let run = outcome(dlock(&run).env("DLOCK_SENTINEL_AUTH", "secret"));
    assert_eq!(run.code, 3, "{run:?}");
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
    let at = |args: &[&str]| outcome(&mut dlock_at(&cluster.nodes[0], args));
    let listed = at(&["ls"]);
    assert_eq!(listed.code, 69, "{listed:?}");
    assert!(
        listed.out.contains("owner0") && !listed.out.contains("owner1"),
        "{listed:?}"
    );
    assert!(
        listed.err.contains(&format!("cannot connect to {dead}")),
        "{listed:?}"
    );
    let stats = at(&["stats"]);
    assert_eq!(stats.code, 69, "{stats:?}");
    assert_eq!(stats.out.matches("waiters").count(), 1, "{stats:?}");
    let metrics = at(&["stats", "--prometheus"]);
    assert_eq!(metrics.code, 69, "{metrics:?}");
    assert!(
        metrics.out.contains(&format!("dlock_up{{server=\"{dead}\"}} 0")),
        "{metrics:?}"
    );
    assert_eq!(metrics.out.matches("dlock_locks{").count(), 1, "{metrics:?}");
    let mut terminal = Terminal::start(&dlock_at(&cluster.nodes[0], &["top", "--every", "50ms"]), 24, 110);
    terminal.wait_for("owner0");
    terminal.wait_for(&format!("cannot connect to {dead}"));
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}
