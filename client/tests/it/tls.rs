//! Behind TLS: a cluster and Sentinels. `addresses` has a single server with a certificate of its own.
//!
//! If their addresses are texts, the certificate that vouches for them is one of the system. Tests of these run in a
//! copy of this program, for which the system's certificates are those of the test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::addresses::check;
use crate::support::ms;
use dlock_testkit::{Client, Delivery, SLOW_MACHINE, Sentinel, Server, free_port, tls};
use redis::{ClientTlsConfig, TlsCertificates};
use redis_dlock_client::{Address, Endpoints, Error, Locks};
use tempfile::TempDir;

/// Where the copy finds its certificate and its key.
const FOLDER: &str = "DLOCK_TEST_FOLDER";

/// Runs a test in a copy of this program whose system trusts the certificate in a new folder: `None` here, and
/// the folder in the copy.
fn among_friends(test: &str) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = TempDir::new().unwrap();
    tls::write_certificate(folder.path());
    let copy = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("tls::{test}"), "--nocapture"])
        .env(FOLDER, folder.path())
        .env("SSL_CERT_FILE", tls::certificate(folder.path()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&copy.stdout) + String::from_utf8_lossy(&copy.stderr);
    assert!(copy.status.success() && said.contains("1 passed"), "{said}");
    None
}

#[tokio::test]
async fn cluster_with_tls_serves_locks() {
    let Some(folder) = among_friends("cluster_with_tls_serves_locks") else {
        return;
    };
    let port = free_port();
    let server = tls::cluster(&tls::config(&folder, port, "no"), "yes");
    let locks = Locks::open(format!("rediss-cluster://127.0.0.1:{port}")).unwrap();
    check(&locks, &mut server.client(), "door").await;
}

#[tokio::test]
async fn cluster_announcing_plain_ports_times_out() {
    let test = "cluster_announcing_plain_ports_times_out";
    let Some(folder) = among_friends(test) else {
        return;
    };
    let port = free_port();
    let _server = tls::cluster(&tls::config(&folder, port, "no"), "no");
    // The client library goes on trying for half a minute.
    let locks = Locks::open(format!("rediss-cluster://127.0.0.1:{port}")).unwrap();
    // Longer than a request that does not wait may take, for that is another way through the client.
    for wait in [ms(300), ms(3500)] {
        let start = Instant::now();
        let refused = locks.lock("door").wait(wait).acquire().await.unwrap_err();
        let took = start.elapsed();
        assert!(matches!(refused, Error::Timeout { .. }), "{refused:?}");
        assert!(took >= wait && took < wait + SLOW_MACHINE, "{took:?} of {wait:?}");
    }
    let start = Instant::now();
    assert!(locks.try_acquire("door").await.is_err());
    let patience = Duration::from_secs(5);
    assert!(start.elapsed() < 2 * patience, "{:?}", start.elapsed());
}

#[tokio::test]
async fn sentinels_with_tls_serve_locks() {
    let Some(folder) = among_friends("sentinels_with_tls_serve_locks") else {
        return;
    };
    let (primary_port, port) = (free_port(), free_port());
    let primary = Server::with(&tls::config(&folder, primary_port, "no"));
    let _sentinel = Sentinel::start(primary_port, 0, &tls::config(&folder, port, "no"));
    let locks = Locks::open(format!("rediss-sentinel://127.0.0.1:{port}/main")).unwrap();
    check(&locks, &mut primary.client(), "door").await;
}

/// Certificates of the application instead of the system's, one of which servers demand.
async fn check_certificates(folder: &Path, address: &str, client: &mut Client) {
    let read = |path| fs::read(path).unwrap();
    let mut certificates = TlsCertificates {
        root_cert: Some(read(tls::certificate(folder))),
        client_tls: Some(ClientTlsConfig {
            client_cert: read(tls::certificate(folder)),
            client_key: read(tls::key(folder)),
        }),
    };
    let open = |certificates| {
        let endpoints: Endpoints = address.parse().unwrap();
        Locks::open(Address::with_certificates(endpoints, certificates).unwrap()).unwrap()
    };
    check(&open(certificates.clone()), client, "door").await;
    certificates.client_tls = None;
    assert!(open(certificates).try_acquire("door").await.is_err());
}

#[tokio::test]
async fn cluster_is_shown_certificate_of_application() {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    tls::write_certificate(folder.path());
    let server = tls::cluster(&tls::config(folder.path(), port, "yes"), "yes");
    let address = format!("rediss-cluster://127.0.0.1:{port}");
    check_certificates(folder.path(), &address, &mut server.client()).await;
}

#[tokio::test]
async fn sentinel_and_primary_are_shown_certificate_of_application() {
    let (folder, primary_port, port) = (TempDir::new().unwrap(), free_port(), free_port());
    tls::write_certificate(folder.path());
    let primary = Server::with(&tls::config(folder.path(), primary_port, "yes"));
    let _sentinel = Sentinel::start(primary_port, 0, &tls::config(folder.path(), port, "yes"));
    let address = format!("rediss-sentinel://127.0.0.1:{port}/main");
    check_certificates(folder.path(), &address, &mut primary.client()).await;
}

/// The reader and the requests of an inbox, as any Redis client sends them.
#[test]
fn inbox_is_read_over_tls() {
    const REQUESTS: usize = 1_200;
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    tls::write_certificate(folder.path());
    let _server = Server::with(&tls::config(folder.path(), port, "no"));
    let trusted = TlsCertificates {
        client_tls: None,
        root_cert: Some(fs::read(tls::certificate(folder.path())).unwrap()),
    };
    let client = redis::Client::build_with_tls(format!("rediss://127.0.0.1:{port}/"), trusted).unwrap();
    let (mut requests, mut reader) = (client.get_connection().unwrap(), client.get_connection().unwrap());
    let mut call = |cursor: u64| {
        let mut grants = redis::cmd("DLOCK.GRANTS");
        grants.arg("inbox").arg(cursor).arg("BLOCK").arg(60_000);
        Delivery::parse(&grants.query(&mut reader).unwrap())
    };
    let acquire = |owner: String| {
        let mut acquire = redis::cmd("DLOCK.ACQUIRE");
        acquire.arg("door").arg(owner).arg(60_000);
        acquire
    };
    let mut cursor = call(0).cursor;
    let mut pipeline = redis::pipe();
    pipeline.add_command(acquire("alice".into())).ignore();
    for n in 0..REQUESTS {
        let mut request = acquire(format!("owner{n}"));
        request
            .arg("SHARED")
            .arg("QUEUE")
            .arg("inbox")
            .arg(0)
            .arg("REQID")
            .arg(n);
        pipeline.add_command(request).ignore();
    }
    pipeline.exec(&mut requests).unwrap();
    let mut release = redis::cmd("DLOCK.RELEASE");
    release.arg("door").arg("alice").exec(&mut requests).unwrap();
    let mut received = 0;
    while received < REQUESTS {
        let delivery = call(cursor);
        for answer in delivery.answers {
            assert_eq!(answer.shown(), format!("granted {received} door owner{received}"));
            received += 1;
        }
        cursor = delivery.cursor;
    }
}

#[test]
fn certificates_without_tls_are_rejected() {
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: None,
    };
    for text in ["redis://one", "redis-cluster://one", "redis-sentinel://one/main"] {
        let rejected = Address::with_certificates(text.parse().unwrap(), certificates.clone());
        assert!(matches!(rejected, Err(Error::Invalid(_))), "{text}");
    }
}
