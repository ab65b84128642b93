//! Connecting to a cluster, a Unix socket, Sentinels, and with TLS.

use std::fs;
use std::net::TcpListener;

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
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("redis.sock");
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
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
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
    let by_options = ["--tls", "-h", "localhost", "-p", &port, "--cacert", authority];
    let url = format!("rediss://localhost:{port}");
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
