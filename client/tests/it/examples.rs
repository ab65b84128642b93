//! The examples do what they say.

// Their programs are not called here.
#[allow(dead_code)]
#[path = "../../examples/first.rs"]
mod first;
#[allow(dead_code)]
#[path = "../../examples/jobs.rs"]
mod jobs;
#[allow(dead_code)]
#[path = "../../examples/orders.rs"]
mod orders;

use std::net::SocketAddr;

use crate::support::{locks, ms, soon, until, until_free};
use dlock_testkit::{Client, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[tokio::test]
async fn first_example_locks_twice_and_leaves_nothing() {
    let (server, mut client) = start();
    first::ship(&server.url()).await.unwrap();
    assert_eq!(client.stat("dlock_acquired"), 2);
    assert!(client.find_lock("orders:42").is_none());
}

#[test]
fn page_shows_the_service_that_is_tested() {
    let (_, code) = include_str!("../service.rs").split_once("\n\n").unwrap();
    assert!(include_str!("../../../docs/client.md").contains(code));
}

/// The service, where it listens, and what stops it.
struct Service {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), String>>,
}

impl Service {
    async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let served = orders::serve(&server, listener, async { _ = stopped.await });
            served.await.map_err(|error| error.to_string())
        });
        Self { address, stop, task }
    }

    /// The answer to a request.
    fn ask(&self, request: &str) -> JoinHandle<String> {
        let (address, request) = (self.address, request.to_owned());
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        })
    }

    async fn metrics(&self) -> String {
        self.ask("GET /metrics").await.unwrap()
    }
}

#[tokio::test]
async fn orders_run_one_at_a_time_each_and_eight_payments_at_once() {
    let (server, mut client) = start();
    let service = Service::start(server.url()).await;
    let placing: Vec<_> = (0..200)
        .map(|n| service.ask(&format!("POST /orders/{}", n % 50)))
        .collect();
    let changing = service.ask("PUT /config");
    let mut most_payments = 0;
    while !placing.iter().all(JoinHandle::is_finished) {
        let holders = client.find_lock("payments").map_or(0, |lock| lock.holders.len());
        most_payments = most_payments.max(holders);
        tokio::time::sleep(ms(1)).await;
    }
    assert!((2..=8).contains(&most_payments), "{most_payments}");
    for answer in placing {
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert!(changing.await.unwrap().ends_with("changed\n"));
    let metrics = service.metrics().await;
    assert!(
        metrics.ends_with("locks_held 0\nlocks_lost_total 0\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn service_that_is_stopped_answers_what_it_has_begun_and_leaves_no_lock() {
    let (server, mut client) = start();
    let service = Service::start(server.url()).await;
    let placing: Vec<_> = (0..30)
        .map(|n| service.ask(&format!("POST /orders/{n}")))
        .collect();
    until("orders", || client.ask::<usize>("DBSIZE") > 10).await;
    service.stop.send(()).unwrap();
    soon("the end", service.task).await.unwrap().unwrap();
    assert_eq!(client.ask::<usize>("DBSIZE"), 0);
    for answer in placing {
        // Connections that were not accepted yet have no answer.
        let answer = answer.await;
        let is_expected = answer.is_err() || answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "));
        assert!(is_expected);
    }
}

#[tokio::test]
async fn service_tells_whether_it_is_ready() {
    let (mut server, _) = start();
    let service = Service::start(server.url()).await;
    assert!(service.ask("GET /ready").await.unwrap().ends_with("ready\n"));
    server.kill();
    let answer = service.ask("GET /ready").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

fn leads(client: &mut Client, name: &str) -> bool {
    let owner = client.owner("{jobs}:leader");
    owner.is_some_and(|owner| owner.starts_with(name))
}

#[tokio::test]
async fn process_leads_after_another_one_and_does_each_job_once() {
    let (server, mut client) = start();
    let lead = |name: &'static str| {
        let locks = locks(&server);
        tokio::spawn(async move { jobs::lead(&locks, name).await })
    };
    let alice = lead("alice");
    until("alice to lead", || leads(&mut client, "alice:")).await;
    let bob = lead("bob");
    until("bob to wait", || client.waiting("{jobs}:leader") == 1).await;
    let entries = |client: &mut Client| client.ask::<Vec<String>>("LRANGE {jobs}:journal 0 -1");
    until("an entry of alice", || !entries(&mut client).is_empty()).await;
    alice.abort();
    until("bob to lead", || leads(&mut client, "bob:")).await;
    // Started twice by mistake, it does not share the lead.
    let second = lead("bob");
    until("the second bob to wait", || client.waiting("{jobs}:leader") == 1).await;
    assert_eq!(client.lock("{jobs}:leader").holders[0].holds, 1);
    until("an entry of bob", || {
        entries(&mut client)
            .last()
            .is_some_and(|entry| entry.starts_with("bob"))
    })
    .await;
    let fences: Vec<u64> = entries(&mut client)
        .iter()
        .map(|entry| entry.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(fences.is_sorted(), "{fences:?}");
    bob.abort();
    second.abort();
    until_free(&mut client, "{jobs}:leader").await;
}

#[tokio::test]
async fn leader_whose_lock_is_broken_writes_no_more_and_waits_again() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let leading = tokio::spawn(async move { jobs::lead(&locks, "alice").await });
    until("alice to lead", || leads(&mut client, "alice:")).await;
    client.call("DEL {jobs}:leader").unwrap();
    client.acquire("{jobs}:leader mallory 60000");
    until("alice to wait", || client.waiting("{jobs}:leader") == 1).await;
    let mut written = || client.ask::<usize>("LLEN {jobs}:journal");
    let before = written();
    // A leader writes ten times a second.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(written(), before);
    assert!(!leading.is_finished());
    leading.abort();
}
