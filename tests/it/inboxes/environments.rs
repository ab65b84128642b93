//! Waiting through inboxes by many processes at once, on servers in different configurations.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use dlock_testkit::{Client, Inbox, Outcome, Server, start, start_with, wait_for};

const PROCESSES: usize = 4;
const REQUESTS: usize = 100;
const LOCKS: usize = 7;

/// Several processes wait for the same locks. Each request must be answered once, with a grant, no lock may be held
/// twice, and fences must rise.
fn work_through_inboxes(server: &Server, client: impl Fn() -> Client + Sync) {
    let held: Mutex<BTreeMap<String, Option<String>>> = Mutex::default();
    let fences: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let take = |key: &str, owner: &str, fence: u64| {
        let before = held
            .lock()
            .expect("no panic")
            .insert(key.into(), Some(owner.into()));
        assert_eq!(before.flatten(), None, "{key} is held by {owner} as well");
        let last = fences.lock().expect("no panic").insert(key.into(), fence);
        assert!(last < Some(fence));
    };
    let put = |key: &str| _ = held.lock().expect("no panic").insert(key.into(), None);
    thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (client, take, put) = (&client, &take, &put);
            scope.spawn(move || {
                let mut inbox = Inbox::make(server, &format!("process{process}"));
                let mut requester = client();
                let mut open = 0;
                for n in 0..REQUESTS {
                    let (key, owner) = (format!("lock{}", n % LOCKS), format!("owner{process}-{n}"));
                    let request = format!("{key} {owner} 60000 QUEUE process{process} 0 REQID r");
                    let reply: Vec<u64> = requester.ask(&format!("DLOCK.ACQUIRE {request}"));
                    if let [fence, ..] = reply[..]
                        && reply.len() == 4
                    {
                        take(&key, &owner, fence);
                        put(&key);
                        requester.release(&format!("{key} {owner} FENCE {fence}"));
                    } else {
                        open += 1;
                    }
                }
                while open > 0 {
                    for answer in inbox.call("BLOCK 60000").answers {
                        let Outcome::Granted(grant) = answer.outcome else {
                            panic!("{answer:?}");
                        };
                        take(&answer.key, &answer.owner, grant.fence);
                        put(&answer.key);
                        let release = format!("{} {} FENCE {}", answer.key, answer.owner, grant.fence);
                        assert_eq!(requester.release(&release), 0);
                        open -= 1;
                    }
                }
                inbox.assert_empty();
            });
        }
    });
    let mut client = client();
    assert_eq!(client.ask::<i64>("DBSIZE"), 0);
    for gauge in ["dlock_waiters", "dlock_inbox_answers", "dlock_contended_locks"] {
        wait_for(gauge, || client.stat(gauge) == 0);
    }
    assert_eq!(client.stat("dlock_acquired"), (PROCESSES * REQUESTS) as i64);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn all_requests_of_many_processes_are_granted() {
    let server = Server::start();
    work_through_inboxes(&server, || server.client());
}

#[test]
fn all_requests_are_granted_in_resp3() {
    let server = Server::start();
    work_through_inboxes(&server, || server.client_resp3());
}

#[test]
fn all_requests_are_granted_with_io_threads() {
    let server = Server::with("io-threads 4");
    work_through_inboxes(&server, || server.client());
}

#[test]
fn all_requests_are_granted_with_aof_and_replica() {
    let server = Server::with("appendonly yes\nappendfsync everysec");
    let replica = server.replica();
    work_through_inboxes(&server, || server.client());
    server.client().acquire("last alice 60000");
    let mut on_replica = replica.client();
    wait_for("the replica to follow", || on_replica.exists("last"));
    assert_eq!(on_replica.ask::<i64>("DBSIZE"), 1);
}

#[test]
fn all_requests_are_granted_at_hz_1() {
    let (server, _client) = start_with("hz 1");
    work_through_inboxes(&server, || server.client());
}

#[test]
fn all_requests_are_granted_while_reader_comes_and_goes() {
    const REQUESTS: usize = 200;
    let (server, mut client) = start();
    let mut inbox = Inbox::make(&server, "inbox");
    client.acquire("door alice 60000");
    for n in 0..REQUESTS {
        client.enqueue(&format!("door owner{n} 60000 QUEUE inbox 0 REQID r"));
    }
    client.release("door alice");
    for n in 0..REQUESTS {
        let answer = inbox.take(1).remove(0);
        assert_eq!(answer.owner, format!("owner{n}"));
        if n % 3 == 0 {
            // A call whose reply is lost with its connection.
            inbox.send("BLOCK 60000");
            client.release(&format!("door owner{n}"));
            inbox.reconnect(&server);
        } else {
            client.release(&format!("door owner{n}"));
        }
    }
    inbox.assert_empty();
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}
