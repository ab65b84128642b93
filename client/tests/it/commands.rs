//! The five commands on the connections of redis-rs, with typed answers and errors.

use std::time::Duration;

use crate::support::ms;
use dlock_testkit::Server;
use dlock_testkit::{Cluster, start};
use redis_dlock_client::{
    Acquire, Command, Error, Extend, GetInfo, GetOwner, Grant, LockInfo, Lost, Owner, Release,
};

fn check_sync(connection: &mut impl redis::ConnectionLike, key: &str) {
    let lease = ms(60_000);
    let grant = Acquire::new(key, "alice", lease).request_id("r1");
    let grant = grant.query(connection).unwrap().unwrap();
    assert_eq!((grant.holds, grant.lease, grant.waited), (1, lease, ms(0)));
    assert!(grant.fence > 0);
    assert_eq!(Acquire::new(key, "bob", lease).query(connection).unwrap(), None);
    let reply = Acquire::new(key, "bob", lease).block(ms(1));
    let reply = reply.query(connection).unwrap();
    assert_eq!(reply, None);
    let reply = Extend::new(key, "alice", 2 * lease).fence(grant.fence);
    let reply = reply.query(connection).unwrap();
    assert_eq!(reply, 2 * lease);
    let expected = Some(Owner::from("alice"));
    assert_eq!(GetOwner::new(key).query(connection).unwrap(), expected);
    let info = GetInfo::new(key).query(connection).unwrap().unwrap();
    let expected = (Some(1), grant.fence, 0);
    assert_eq!((info.limit, info.holders[0].fence, info.waiting), expected);
    let stale = Release::new(key, "alice")
        .fence(grant.fence + 1)
        .query(connection);
    assert!(matches!(stale, Err(Error::Lost(Lost::Stale))), "{stale:?}");
    let not_owner = Release::new(key, "bob").query(connection);
    assert!(
        matches!(not_owner, Err(Error::Lost(Lost::NotOwner))),
        "{not_owner:?}"
    );
    assert_eq!(
        Release::new(key, "alice")
            .request_id("r1")
            .query(connection)
            .unwrap(),
        0
    );
    let not_held = Extend::new(key, "alice", lease).query(connection);
    assert!(
        matches!(not_held, Err(Error::Lost(Lost::NotHeld))),
        "{not_held:?}"
    );
    assert_eq!(GetOwner::new(key).query(connection).unwrap(), None);
    assert_eq!(GetInfo::new(key).query(connection).unwrap(), None);
    for _ in 0..3 {
        Acquire::new(key, "alice", lease)
            .shared()
            .query(connection)
            .unwrap()
            .unwrap();
    }
    Acquire::new(key, "bob", lease)
        .limit(5)
        .query(connection)
        .unwrap()
        .unwrap();
    assert_eq!(Release::new(key, "alice").all().query(connection).unwrap(), 0);
    assert_eq!(Release::new(key, "bob").query(connection).unwrap(), 0);
}

async fn check_async(connection: &mut (impl redis::aio::ConnectionLike + Send), key: &str) {
    let lease = ms(60_000);
    let grant = Acquire::new(key, "alice", lease)
        .query_async(connection)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((grant.holds, grant.lease), (1, lease));
    assert_eq!(
        Acquire::new(key, "bob", lease)
            .query_async(connection)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        Extend::new(key, "alice", 2 * lease)
            .query_async(connection)
            .await
            .unwrap(),
        2 * lease
    );
    assert_eq!(
        GetOwner::new(key).query_async(connection).await.unwrap(),
        Some(Owner::from("alice"))
    );
    let next_fence = GetInfo::new(key).query_async(connection).await.unwrap().unwrap();
    let next_fence = next_fence.holders[0].fence;
    assert_eq!(next_fence, grant.fence);
    assert_eq!(
        Release::new(key, "alice")
            .fence(grant.fence)
            .query_async(connection)
            .await
            .unwrap(),
        0
    );
    let not_held = Release::new(key, "alice").query_async(connection).await;
    assert!(
        matches!(not_held, Err(Error::Lost(Lost::NotHeld))),
        "{not_held:?}"
    );
}

#[test]
fn commands_work_on_blocking_connections() {
    let server = Server::start();
    for mut client in [server.client(), server.client_resp3()] {
        check_sync(client.connection(), "door");
    }
}

#[tokio::test]
async fn commands_work_on_async_connections() {
    let server = Server::start();
    for protocol in ["resp2", "resp3"] {
        let client = redis::Client::open(format!("{}?protocol={protocol}", server.url())).unwrap();
        check_async(
            &mut client.get_multiplexed_async_connection().await.unwrap(),
            "door",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_work_on_cluster_connections() {
    let cluster = Cluster::start(2);
    let client = redis::cluster::ClusterClient::new([cluster.nodes[0].url()]).unwrap();
    for node in 0..2 {
        let key = cluster.key_on(node, "door");
        tokio::task::block_in_place(|| check_sync(&mut client.get_connection().unwrap(), &key));
        check_async(&mut client.get_async_connection().await.unwrap(), &key).await;
        let mut pipeline = redis::cluster::cluster_pipe();
        pipeline
            .add_command(Acquire::new(&key, "alice", ms(60_000)).into())
            .add_command(Release::new(&key, "alice").into());
        let (granted, left): (Option<Grant>, u64) =
            tokio::task::block_in_place(|| pipeline.query(&mut client.get_connection().unwrap()).unwrap());
        assert!(granted.is_some() && left == 0);
    }
}

#[test]
fn commands_work_in_pipelines_and_transactions() {
    let (_server, mut client) = start();
    for atomic in [false, true] {
        let mut pipeline = redis::pipe();
        if atomic {
            pipeline.atomic();
        }
        let lease = ms(60_000);
        pipeline
            .add_command(Acquire::new("door", "alice", lease).into())
            .add_command(Acquire::new("door", "bob", lease).into())
            .add_command(Extend::new("door", "alice", 2 * lease).into())
            .add_command(GetOwner::new("door").into())
            .add_command(GetInfo::new("door").into())
            .add_command(Release::new("door", "alice").into());
        type Answers = (Option<Grant>, Option<Grant>, u64, Owner, Option<LockInfo>, u64);
        let (alice, bob, lease_ms, owner, info, left): Answers = pipeline.query(client.connection()).unwrap();
        assert!(alice.is_some() && bob.is_none());
        assert_eq!((lease_ms, owner, left), (120_000, "alice".into(), 0));
        assert_eq!(info.unwrap().holders.len(), 1);
    }
}

#[test]
fn pipeline_error_keeps_its_code() {
    let server = Server::start();
    let mut release = redis::pipe();
    release.add_command(Release::new("door", "alice").into());
    let refused = release.query::<(u64,)>(server.client().connection()).unwrap_err();
    assert!(matches!(refused.into(), Error::Lost(Lost::NotHeld)));
}

#[test]
fn info_reply_is_parsed_with_queue() {
    let server = Server::start();
    for (book, mut client) in [("red", server.client()), ("blue", server.client_resp3())] {
        client.acquire(&format!("{book} reader 60000 SHARED"));
        let _limited = server.waiter(&format!("{book} writer 60000 BLOCK 0"));
        let _shared = server.waiter(&format!("{book} other 60000 SHARED BLOCK 50000"));
        let info = GetInfo::new(book).query(client.connection()).unwrap().unwrap();
        assert_eq!((info.limit, info.waiting), (None, 2));
        assert_eq!(info.holders[0].owner, Owner::from("reader"));
        let waiters: Vec<_> = info
            .waiters
            .iter()
            .map(|w| (w.owner.to_string(), w.limit, w.timeout))
            .collect();
        let expected = [
            ("writer".to_owned(), Some(1), None),
            ("other".to_owned(), None, Some(ms(50_000))),
        ];
        assert_eq!(waiters, expected);
    }
}

#[test]
fn blocked_request_waits_for_its_turn() {
    let (server, mut client) = start();
    client.acquire("door alice 300");
    let request = Acquire::new("door", "bob", ms(60_000)).block(Duration::MAX);
    let grant = request.query(server.client().connection()).unwrap().unwrap();
    assert_eq!(client.owner("door").as_deref(), Some("bob"));
    assert!(grant.waited > ms(0), "{grant:?}");
}
