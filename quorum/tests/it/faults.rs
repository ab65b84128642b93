//! Servers that fail.

use redis_dlock_quorum::{Error, Lost, NoQuorum};

use super::*;

fn no_quorum(error: &Error) -> &NoQuorum {
    match error {
        Error::NoQuorum(failure) => failure,
        Error::Timeout { last: Some(last), .. } => last,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_of_five_servers_may_fail_in_any_way() {
    let mut nodes = Nodes::start(5);
    let locks = nodes.locks();
    let guard = locks.acquire("door").await.unwrap();
    let mut last = guard.fence().unwrap();
    nodes.until_held("door", 5).await;
    // The replies have arrived, too.
    tokio::time::sleep(ms(100)).await;
    nodes.servers[0].kill();
    nodes.servers[3].stop();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    for _ in 0..10 {
        let guard = soon("a lock", locks.acquire("door")).await.unwrap();
        assert!(guard.fence().unwrap() > last);
        last = guard.fence().unwrap();
        guard.release().await.unwrap();
    }
    nodes.servers[3].resume();
    nodes.servers[0].start_again();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn first_server_that_is_stopped_delays_one_node_timeout_only() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    nodes.servers[0].stop();
    soon("a lock", locks.acquire("door"))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // It is known to be down now.
    let start = Instant::now();
    for _ in 0..10 {
        locks.acquire("door").await.unwrap().release().await.unwrap();
    }
    assert!(start.elapsed() < NODE_TIMEOUT * 5, "{:?}", start.elapsed());
    // Until it is looked at again.
    nodes.servers[0].resume();
    until("the first server to be asked again", || {
        nodes.servers[0].client().find_lock("door").is_none()
    })
    .await;
    loop {
        let guard = locks.acquire("door").await.unwrap();
        if nodes.servers[0].client().owner("door") == Some(guard.owner().to_string()) {
            break;
        }
        drop(guard);
        tokio::time::sleep(ms(20)).await;
    }
}

#[tokio::test]
async fn first_server_that_goes_silent_while_requests_wait_is_left() {
    for is_killed in [false, true] {
        let mut nodes = Nodes::start(3);
        let locks = nodes.locks();
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held("door", 3).await;
        let others = nodes.locks();
        let waiting = acquiring(&others, "door");
        nodes.until_waiting("door", 1).await;
        if is_killed {
            nodes.servers[0].kill();
        } else {
            nodes.servers[0].stop();
        }
        until("it to wait at the second server", || {
            nodes.servers[1].client().waiting("door") == 1
        })
        .await;
        let first = guard.fence().unwrap();
        guard.release().await.unwrap();
        let guard = soon("the lock", waiting).await.unwrap().unwrap();
        assert!(guard.fence().unwrap() > first);
        guard.release().await.unwrap();
        if !is_killed {
            nodes.servers[0].resume();
        }
    }
}

/// The guards are released before anybody misses its replies.
#[tokio::test]
async fn silent_server_is_asked_less_even_if_nobody_waits_for_its_replies() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    let before = nodes.calls()[2][0];
    nodes.proxies[2].freeze(Way::ToClient);
    let (start, mut acquired) = (Instant::now(), 0);
    while start.elapsed() < NODE_TIMEOUT * 4 {
        let guard = locks.acquire("door").await.unwrap();
        // On a busy machine a majority may confirm it too late.
        drop(guard.release().await);
        acquired += 1;
        // Most of the time no request is on its way.
        tokio::time::sleep(ms(50)).await;
    }
    let requests = nodes.calls()[2][0] - before;
    assert!(requests < acquired * 2 / 3, "{requests} for {acquired} locks");
}

#[tokio::test]
async fn minority_never_gives_a_guard_and_is_given_back() {
    let mut nodes = Nodes::start(3);
    let locks = nodes.locks();
    for server in [1, 2] {
        nodes.servers[server].kill();
    }
    let error = locks.lock("door").try_acquire().await.unwrap_err();
    let failure = no_quorum(&error);
    assert_eq!((failure.needed, failure.failures.len()), (2, 2), "{failure}");
    for server in [1, 2] {
        let address = format!("127.0.0.1:{}", nodes.proxies[server].port());
        assert!(failure.to_string().contains(&address), "{failure}");
    }
    nodes.until_free("door").await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("door").timeout(ms(1500)).acquire().await }
    });
    // While it waits, it does not keep the server that it sees.
    until("the server to be free", || {
        nodes.servers[0].client().find_lock("door").is_none()
    })
    .await;
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_eq!(no_quorum(&error).failures.len(), 2, "{error}");
    nodes.until_free("door").await;
}

#[tokio::test]
async fn client_cut_off_from_the_majority_gives_the_first_server_back() {
    let nodes = Nodes::start(3);
    let isolated = nodes.behind_other_proxies();
    let locks = isolated.locks();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    nodes.until_free("door").await;
    nodes.occupy([1, 2], "door");
    let waiting = tokio::spawn(async move { locks.lock("door").lease(ms(60_000)).acquire().await });
    nodes.until_held("door", 3).await;
    for server in [1, 2] {
        isolated.proxies[server].freeze(Way::ToServer);
    }
    until("the first server to be given back", || {
        nodes.servers[0].client().owner("door").is_none()
    })
    .await;
    waiting.abort();
}

#[tokio::test]
async fn waiting_client_acquires_when_a_majority_is_back() {
    let mut nodes = Nodes::start(3);
    for server in [0, 2] {
        nodes.servers[server].kill();
    }
    let locks = nodes.locks();
    let waiting = acquiring(&locks, "door");
    tokio::time::sleep(ms(100)).await;
    nodes.servers[2].start_again();
    drop(soon("the lock", waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn waiting_client_asks_a_server_again_after_its_restart() {
    let mut nodes = Nodes::start(3);
    nodes.occupy([1, 2], "door");
    let locks = nodes.locks();
    let waiting = acquiring(&locks, "door");
    nodes.until_waiting_elsewhere("door").await;
    // It has forgotten its holder.
    nodes.servers[1].crash_and_restart();
    drop(soon("the lock", waiting).await.unwrap().unwrap());
}

/// A lock on three servers, with a short lease.
async fn held_by_three() -> (Nodes, Guard) {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().lock("door").lease(ms(3000));
    let guard = lock.acquire().await.unwrap();
    nodes.until_held("door", 3).await;
    (nodes, guard)
}

#[tokio::test]
async fn loss_of_a_majority_is_noticed() {
    // By the clock.
    let (mut nodes, guard) = held_by_three().await;
    nodes.servers[0].kill();
    until("a renewal", renewed(|| guard.remaining())).await;
    nodes.servers[1].stop();
    assert_eq!(soon("the loss", guard.lost()).await, Lost::LeaseExpired);
    nodes.servers[1].resume();
    // By what the servers say.
    let (nodes, guard) = held_by_three().await;
    for server in [0, 2] {
        nodes.servers[server].client().send("DEL door");
    }
    assert_eq!(soon("the loss", guard.lost()).await, Lost::NotHeld);
    // The holder may need time to stop: what it has left stays for the rest of its lease, without renewal.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(nodes.holders("door"), [guard.owner().to_string()]);
    nodes.until_free("door").await;
    drop(guard);
}

#[tokio::test]
async fn release_tells_that_a_majority_had_lost_the_lock() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    for (broken, is_lost) in [(2, false), (3, true)] {
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held("door", 5).await;
        // The replies have arrived, too.
        tokio::time::sleep(ms(100)).await;
        for server in &nodes.servers[..broken] {
            server.client().send("DEL door");
        }
        let released = guard.release().await;
        assert_eq!(
            released.is_err_and(|error| matches!(error, Error::Lost(_))),
            is_lost
        );
        nodes.until_free("door").await;
    }
}

#[tokio::test]
async fn release_that_a_majority_does_not_answer_is_no_success() {
    let mut nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    // The replies have arrived, too.
    tokio::time::sleep(ms(100)).await;
    for server in [0, 1] {
        nodes.servers[server].kill();
    }
    let error = soon("the release", guard.release()).await.unwrap_err();
    assert_eq!(no_quorum(&error).failures.len(), 2, "{error}");
}

#[tokio::test]
async fn late_grant_joins_the_lock() {
    let mut nodes = Nodes::start(3);
    let locks = nodes.locks();
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    nodes.proxies[2].delay(Way::ToClient, NODE_TIMEOUT / 3);
    let guard = locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    nodes.until_held("door", 3).await;
    nodes.proxies[2].delay(Way::ToClient, ms(0));
    tokio::time::sleep(NODE_TIMEOUT).await;
    // It counts: one of the others may go.
    nodes.servers[1].kill();
    until("a renewal", renewed(|| guard.remaining())).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn server_that_restarts_empty_grants_nothing_before_its_grace_is_over() {
    let mut nodes = Nodes::start(3);
    let locks = nodes.locks();
    let guard = locks.acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    // The client knows it, too: without the first server it needs both others.
    locks.shutdown().await;
    nodes.servers[0].add_config("dlock.startup-grace-ms 60000");
    nodes.servers[0].crash_and_restart();
    let others = nodes.locks();
    let waiting = acquiring(&others, "door");
    // It does not wait in the queue of the server that grants nothing.
    until("it to wait at the second server", || {
        nodes.servers[1].client().waiting("door") == 1
    })
    .await;
    assert!(guard.is_held());
    let first = guard.fence().unwrap();
    guard.release().await.unwrap();
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(guard.fence().unwrap() > first);
    guard.release().await.unwrap();
    // Nor is it asked any more once the client has looked at it, as it does each second.
    let use_for = async |time| {
        let start = Instant::now();
        while start.elapsed() < time {
            locks.acquire("door").await.unwrap().release().await.unwrap();
            tokio::time::sleep(ms(50)).await;
        }
        nodes.calls()[0][0]
    };
    let asked = use_for(NODE_TIMEOUT * 3).await;
    assert_eq!(use_for(NODE_TIMEOUT * 3).await, asked);
}

#[tokio::test]
async fn server_with_larger_fences_does_not_keep_the_others_from_agreeing() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let last = locks.acquire("door").await.unwrap().fence().unwrap();
    nodes.until_free("door").await;
    // As after a restart of that server alone.
    tokio::time::sleep(ms(50)).await;
    let min = last + 20_000;
    let ahead = nodes.servers[2]
        .client()
        .acquire(&format!("door somebody 1 MINFENCE {min}"))
        .fence;
    until("that lock to end", || {
        nodes.servers[2].client().owner("door").is_none()
    })
    .await;
    for _ in 0..3 {
        let guard = locks.acquire("door").await.unwrap();
        assert!(guard.fence().unwrap() > last);
        guard.release().await.unwrap();
        locks.shutdown().await;
    }
    // The majority includes it.
    nodes.servers[1].stop();
    let guard = soon("the lock", locks.acquire("door")).await.unwrap();
    assert!(guard.fence().unwrap() > ahead);
    for server in [0, 2] {
        let holders = nodes.servers[server].client().lock("door").holders;
        assert_eq!(holders[0].fence, guard.fence().unwrap());
    }
    guard.release().await.unwrap();
    nodes.servers[1].resume();
}
