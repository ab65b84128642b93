//! Writes that the server runs only while the lock is held.

use crate::support::locks;
use dlock_testkit::{Cluster, Server};
use redis_dlock_client::{Error, Guard, LUA_FENCE_CHECK, Locks, Lost, redis};

async fn connect(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn set(guard: &Guard, value: &str) -> redis::Cmd {
    guard.fenced(&redis::Cmd::set("report", value))
}

#[tokio::test]
async fn fenced_write_of_lost_lock_is_refused_with_its_reason() {
    let server = Server::start();
    let (mut client, mut data) = (server.client(), connect(&server).await);
    let lock = locks(&server).lock("door").owner("alice");
    let others = [
        ("PING", Lost::NotHeld),
        ("DLOCK.ACQUIRE door bob 60000", Lost::NotOwner),
        ("DLOCK.ACQUIRE door alice 60000", Lost::Stale),
    ];
    for (other, lost) in others {
        let guard = lock.acquire().await.unwrap();
        set(&guard, "first").exec_async(&mut data).await.unwrap();
        let () = guard.query(&redis::Cmd::set("report", "held")).await.unwrap();
        client.call("DEL door").unwrap();
        client.call(other).unwrap();
        // The guard does not know yet.
        assert!(guard.is_held());
        let refused = set(&guard, "late").exec_async(&mut data).await;
        let refused = Error::from(refused.unwrap_err());
        assert_eq!(refused, Error::Lost(lost));
        let refused: Result<(), Error> = guard.query(&redis::Cmd::set("report", "late")).await;
        assert_eq!(refused, Err(Error::Lost(lost)));
        assert_eq!(client.ask::<String>("GET report"), "held");
        client.call("DEL door").unwrap();
    }
}

#[tokio::test]
async fn fenced_write_in_pipeline_and_transaction_is_checked() {
    let server = Server::start();
    let mut data = connect(&server).await;
    let guard = locks(&server).acquire("door").await.unwrap();
    let increment = guard.fenced(&redis::Cmd::incr("count", 2));
    let mut both = redis::pipe();
    both.add_command(increment.clone()).add_command(increment);
    let counts: (u64, u64) = both.query_async(&mut data).await.unwrap();
    assert_eq!(counts, (2, 4));
    let counts: (u64, u64) = both.atomic().query_async(&mut data).await.unwrap();
    assert_eq!(counts, (6, 8));
    server.client().call("DEL door").unwrap();
    let refused: redis::RedisResult<(u64, u64)> = both.query_async(&mut data).await;
    let refused = Error::from(refused.unwrap_err());
    assert_eq!(refused, Error::Lost(Lost::NotHeld));
    assert_eq!(server.client().ask::<u64>("GET count"), 8);
}

#[tokio::test]
async fn script_of_lost_lock_writes_nothing() {
    let server = Server::start();
    let mut data = connect(&server).await;
    let guard = locks(&server).acquire("door").await.unwrap();
    let mut write = redis::cmd("EVAL");
    write
        .arg(format!(
            "{LUA_FENCE_CHECK} return redis.call('APPEND', KEYS[2], ARGV[3])"
        ))
        .arg(2)
        .arg(&[guard.key(), b"report"])
        .arg(guard.owner())
        .arg(guard.fence())
        .arg("x");
    assert_eq!(write.query_async::<u64>(&mut data).await.unwrap(), 1);
    server.client().call("DEL door").unwrap();
    let refused = Error::from(write.exec_async(&mut data).await.unwrap_err());
    assert!(matches!(refused, Error::Lost(Lost::NotHeld)), "{refused:?}");
    assert_eq!(server.client().ask::<String>("GET report"), "x");
}

#[tokio::test]
async fn fenced_write_in_cluster_goes_to_the_node_of_the_lock() {
    let cluster = Cluster::start(3);
    let seed = format!("127.0.0.1:{}", cluster.nodes[0].port());
    let client = redis::cluster::ClusterClient::new([format!("redis://{seed}")]).unwrap();
    let locks = Locks::open(client.clone()).unwrap();
    let mut data = client.get_async_connection().await.unwrap();
    for node in 0..3 {
        let key = cluster.key_on(node, "acct");
        let guard = locks.acquire(format!("{{{key}}}:lock")).await.unwrap();
        let write = guard.fenced(&redis::Cmd::set(&key, node));
        write.exec_async(&mut data).await.unwrap();
        assert_eq!(cluster.client(node).ask::<usize>(&format!("GET {key}")), node);
        guard.release().await.unwrap();
        let refused = Error::from(write.exec_async(&mut data).await.unwrap_err());
        assert!(matches!(refused, Error::Lost(Lost::NotHeld)), "{refused:?}");
    }
}
