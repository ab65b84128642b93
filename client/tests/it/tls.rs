//! Behind TLS: a cluster and Sentinels. `addresses` has a single server with a certificate of its own.
//!
//! Their addresses are texts, so the certificate that vouches for them is one of the system. The tests run in a
//! copy of this program, for which the system's certificates are those of the test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{ms, soon, until, until_free};
use dlock_testkit::{Client, SLOW_MACHINE, Server, free_port, wait_for};
use redis_dlock_client::{Error, Locks};
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
    let names = ["localhost", "127.0.0.1"].map(String::from);
    let own = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(folder.path().join("cert.pem"), own.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), own.signing_key.serialize_pem()).unwrap();
    let copy = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("tls::{test}"), "--nocapture"])
        .env(FOLDER, folder.path())
        .env("SSL_CERT_FILE", folder.path().join("cert.pem"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&copy.stdout) + String::from_utf8_lossy(&copy.stderr);
    assert!(copy.status.success() && said.contains("1 passed"), "{said}");
    None
}

/// The lines of a configuration that make a server listen behind TLS.
fn tls_lines(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "tls-port {port}\ntls-cert-file {folder}/cert.pem\ntls-key-file {folder}/key.pem\n\
         tls-ca-cert-file {folder}/cert.pem\ntls-auth-clients no"
    )
}

/// A lock is acquired, renewed, waited for, and released.
async fn check(locks: &Locks, client: &mut Client) {
    let guard = locks.lock("door").lease(ms(2000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock("door");
        async move { lock.acquire().await }
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    // Longer than a lease.
    tokio::time::sleep(ms(2500)).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), 0);
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    drop(next);
    until_free(client, "door").await;
}

/// A cluster of one node, which tells its clients this setting's ports.
fn cluster(folder: &Path, port: u16, tls_cluster: &str) -> Server {
    let tls = tls_lines(folder, port);
    let server = Server::with(&format!("cluster-enabled yes\ntls-cluster {tls_cluster}\n{tls}"));
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_for("a cluster that is served", || {
        client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
    });
    server
}

#[tokio::test]
async fn cluster_with_tls_serves_locks() {
    let Some(folder) = among_friends("cluster_with_tls_serves_locks") else {
        return;
    };
    let port = free_port();
    let server = cluster(&folder, port, "yes");
    let locks = Locks::open(format!("rediss-cluster://127.0.0.1:{port}")).unwrap();
    check(&locks, &mut server.client()).await;
}

#[tokio::test]
async fn cluster_announcing_plain_ports_times_out() {
    let test = "cluster_announcing_plain_ports_times_out";
    let Some(folder) = among_friends(test) else {
        return;
    };
    let port = free_port();
    let _server = cluster(&folder, port, "no");
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

/// Killed when dropped: exactly this child, by its handle.
struct Sentinel(Child);

impl Drop for Sentinel {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn sentinels_with_tls_serve_locks() {
    let Some(folder) = among_friends("sentinels_with_tls_serve_locks") else {
        return;
    };
    let (primary_port, port) = (free_port(), free_port());
    let primary = Server::with(&tls_lines(&folder, primary_port));
    let config = folder.join("sentinel.conf");
    let lines = format!(
        "bind 127.0.0.1\nport 0\ndir {}\n{}\ntls-replication yes\nsentinel monitor main 127.0.0.1 {primary_port} 1\n",
        folder.display(),
        tls_lines(&folder, port)
    );
    fs::write(&config, lines).unwrap();
    let program = env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
    let sentinel = Command::new(program)
        .arg(&config)
        .arg("--sentinel")
        .stdout(Stdio::null())
        .spawn();
    let _sentinel = Sentinel(sentinel.unwrap());
    let locks = Locks::open(format!("rediss-sentinel://127.0.0.1:{port}/main")).unwrap();
    // It takes a while until the Sentinel is there and has found the primary.
    let patient = locks.lock("warm-up").wait(Duration::from_secs(20));
    patient.acquire().await.unwrap().release().await.unwrap();
    check(&locks, &mut primary.client()).await;
}
