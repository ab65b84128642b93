//! Where servers can be: a port, a socket, behind TLS, behind Sentinels, in a cluster.

use crate::support::{ms, soon, until, until_free};
use dlock_testkit::{Server, free_port, renewed, tls, wait_for};
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis_dlock_client::{Error, Locks};

/// A lock is acquired, waited for, renewed, cancelled and released, whatever the address.
pub async fn check(locks: &Locks, client: &mut dlock_testkit::Client, key: &str) {
    let guard = locks.lock(key).lease(ms(3000)).acquire().await.unwrap();
    assert_eq!(client.lock(key).holders[0].fence, guard.fence());
    let waiting = tokio::spawn({
        let lock = locks.lock(key);
        async move { lock.acquire().await }
    });
    until("a place in the queue", || client.waiting(key) == 1).await;
    tokio::select! {
        outcome = locks.acquire(key) => panic!("{outcome:?}"),
        () = until("another place", || client.waiting(key) == 2) => {}
    }
    until("the withdrawal", || client.waiting(key) == 1).await;
    until("a renewal", renewed(|| guard.remaining())).await;
    guard.release().await.unwrap();
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    drop(locks.acquire(key).await.unwrap());
    until_free(client, key).await;
}

/// A client of the primary that a Sentinel knows.
fn sentinels(port: u16) -> SentinelClient {
    let sentinels = vec![format!("redis://127.0.0.1:{port}/")];
    SentinelClient::build(sentinels, String::from("main"), None, SentinelServerType::Master).unwrap()
}

#[tokio::test]
async fn url_with_password_and_database_connects() {
    let server = Server::with("user alice on >secret ~* &* +@all");
    let locks = Locks::open(format!("redis://alice:secret@127.0.0.1:{}/3", server.port())).unwrap();
    let mut client = server.client();
    client.ok("SELECT 3");
    check(&locks, &mut client, "door").await;
    let wrong = Locks::open(format!("redis://alice:wrong@127.0.0.1:{}/3", server.port())).unwrap();
    let refused = wrong.acquire("door").await.unwrap_err();
    assert!(
        matches!(refused, Error::Redis { .. }) && !refused.is_transient(),
        "{refused:?}"
    );
}

#[tokio::test]
async fn redis_client_is_accepted_as_address() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    check(&Locks::open(client).unwrap(), &mut server.client(), "door").await;
}

#[tokio::test]
async fn unix_socket_connects() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let server = Server::with(&format!("unixsocket {}", socket.display()));
    let locks = Locks::open(format!("unix://{}", socket.display())).unwrap();
    check(&locks, &mut server.client(), "door").await;
}

#[tokio::test]
async fn cluster_lock_survives_slot_migration() {
    use dlock_testkit::Cluster;

    let cluster = Cluster::start(3);
    let locks = crate::cluster::locks_of(&cluster, 0);
    for node in 0..3 {
        let key = cluster.key_on(node, "door");
        check(&locks, &mut cluster.client(node), &key).await;
    }
    let key = cluster.key_on(1, "moving");
    let guard = locks.lock(&key).lease(ms(3000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock(&key);
        async move { lock.acquire().await }
    });
    until("a place in the queue", || cluster.client(1).waiting(&key) == 1).await;
    let slot = cluster.begin_move(&key, 1, 2);
    cluster.client(1).ok(&cluster.migrate(slot, &key));
    for node in [2, 1, 0] {
        cluster.client(node).ok(&cluster.assign(slot));
    }
    until("a place in the queue of the new node", || {
        cluster.client(2).waiting(&key) == 1
    })
    .await;
    until("a renewal", renewed(|| guard.remaining())).await;
    guard.release().await.unwrap();
    soon("the lock", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    until_free(&mut cluster.client(2), &key).await;
}

#[tokio::test]
async fn sentinel_failover_is_followed() {
    let mut primary = Server::start();
    let replica = primary.replica();
    let sentinel = dlock_testkit::Sentinel::of(&primary, 1);
    let locks = Locks::open(sentinels(sentinel.port())).unwrap();
    check(&locks, &mut primary.client(), "door").await;
    let guard = locks.lock("door").lease(ms(300_000)).acquire().await.unwrap();
    primary.client().sync();
    primary.kill();
    until("the failover", || is_primary(&replica)).await;
    // Renewed and released on the new primary, under the old fence.
    let released = soon("a release", guard.release()).await;
    // The first reply may come too late, on a slow machine.
    let is_expected = matches!(released, Ok(()) | Err(Error::Unconfirmed(_)));
    assert!(is_expected, "{released:?}");
    until_free(&mut replica.client(), "door").await;
    check(&locks, &mut replica.client(), "gate").await;
}

#[tokio::test]
async fn sentinel_discovery_for_renewals_needs_no_application_runtime() {
    let primary = Server::start();
    let _replica = primary.replica();
    let sentinel = dlock_testkit::Sentinel::of(&primary, 1);
    let proxy = dlock_testkit::Proxy::to(sentinel.port());
    let locks = Locks::open(sentinels(proxy.port())).unwrap();
    let guard = locks.lock("door").lease(ms(4000)).acquire().await.unwrap();
    // The connections are lost, and the Sentinel is asked for the primary.
    proxy.freeze(dlock_testkit::Way::ToClient);
    cut_all_but_sentinels(&mut primary.client());
    let asking = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("gate").try_acquire().await.map(drop) }
    });
    tokio::time::sleep(ms(300)).await;
    proxy.thaw();
    // This blocks the one thread of the test's runtime.
    wait_for("a renewal", renewed(|| guard.remaining()));
    asking.abort();
}

/// Sentinels name their connections. Without them they could take the primary for dead.
fn cut_all_but_sentinels(client: &mut dlock_testkit::Client) {
    let list: String = client.ask("CLIENT LIST TYPE normal");
    for line in list.lines() {
        let mut fields = line.split(' ');
        let id = fields.next().and_then(|field| field.strip_prefix("id="));
        let is_own = line.contains("cmd=client|list");
        if let (Some(id), false, true) = (id, is_own, fields.any(|field| field == "name=")) {
            client.ask::<i64>(&format!("CLIENT KILL ID {id}"));
        }
    }
}

/// A server that has just been promoted sends its clients away.
fn is_primary(server: &Server) -> bool {
    let client = redis::Client::open(server.url()).unwrap();
    let role = client
        .get_connection()
        .and_then(|mut connection| redis::cmd("ROLE").query(&mut connection));
    role.is_ok_and(|role: Vec<redis::Value>| role[0] == redis::Value::BulkString(b"master".to_vec()))
}

#[tokio::test]
async fn self_signed_certificate_is_accepted_if_trusted() {
    let folder = tempfile::tempdir().unwrap();
    tls::write_certificate(folder.path());
    let port = free_port();
    let server = Server::with(&tls::config(folder.path(), port, "no"));
    let address = format!("rediss://127.0.0.1:{port}/");
    let trusted = redis::TlsCertificates {
        client_tls: None,
        root_cert: Some(std::fs::read(tls::certificate(folder.path())).unwrap()),
    };
    let client = redis::Client::build_with_tls(address.as_str(), trusted).unwrap();
    check(&Locks::open(client).unwrap(), &mut server.client(), "door").await;
    // A certificate that nobody vouches for is refused.
    let refused = Locks::open(address)
        .unwrap()
        .lock("door")
        .try_acquire()
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Redis { .. }), "{refused:?}");
}
