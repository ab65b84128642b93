//! Many waiters that disconnect at once leave nothing.

use dlock_testkit::{Client, Reply, Waiter, start, wait_for};

use crate::fixtures::{held_by_alice, wait_until_none_blocked};

/// The memory of the server once all other clients are freed.
fn settled_memory(client: &mut Client) -> i64 {
    wait_for("the other clients to be gone", || {
        client.server_info("clients", "connected_clients") == "1"
    });
    client.server_number("memory", "used_memory")
}

#[test]
fn mass_disconnect_leaks_no_memory() {
    const WAITERS: usize = 500;
    /// Leaking each waiter's owner and key would be more, over all rounds.
    const SLACK: i64 = 150_000;
    let (server, mut client) = start();
    client.acquire("door alice 600000");
    // The first round allocates what the server keeps: tables, buffers.
    let mut before = 0;
    for round in 0..7 {
        let waiters: Vec<Waiter> = (0..WAITERS)
            .map(|n| server.send_acquire(&format!("door owner{n} 60000 BLOCK 0")))
            .collect();
        client.wait_for_queue("door", WAITERS as i64);
        if round % 2 == 0 {
            waiters.into_iter().for_each(Waiter::close);
        } else {
            client.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
            for mut waiter in waiters {
                assert_eq!(waiter.reply(), Reply::Closed);
            }
        }
        wait_until_none_blocked(&mut client);
        let used = settled_memory(&mut client);
        if round == 0 {
            before = used;
        }
        assert!(used < before + SLACK, "round {round}: {before} bytes, now {used}");
    }
    assert_eq!(client.lock("door").owners(), ["alice"]);
    assert_eq!(client.stat("dlock_grants_from_queue"), 0);
}

#[test]
fn grants_to_killed_readers_are_all_rolled_back() {
    // In one step.
    const READERS: usize = 128;
    let (server, mut client) = held_by_alice();
    let mut commands = vec!["DLOCK.RELEASE door alice".to_owned()];
    let mut readers: Vec<Waiter> = (0..READERS)
        .map(|n| {
            let mut reader = Waiter::connect(&server);
            if n % 2 == 0 {
                commands.push(format!("CLIENT KILL ID {}", reader.id()));
            }
            reader.acquire(&format!("door owner{n} 60000 SHARED BLOCK 0"));
            reader
        })
        .collect();
    client.wait_for_queue("door", READERS as i64);
    client.batch(&commands);
    for (n, reader) in readers.iter_mut().enumerate() {
        match reader.reply() {
            Reply::Closed => assert_eq!(n % 2, 0),
            Reply::Granted(_) => assert_eq!(n % 2, 1),
            other => panic!("{other:?}"),
        }
    }
    wait_for("the rollbacks", || {
        client.stat("dlock_grants_rolled_back") == (READERS / 2) as i64
    });
    assert_eq!(client.lock("door").holders.len(), READERS / 2);
    wait_until_none_blocked(&mut client);
}
