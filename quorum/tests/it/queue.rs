//! Waiting: order, slices, and what is left behind.

use std::sync::{Arc, Mutex};

use super::*;

/// Clients of their own that wait for `door`. They note their number and fence when they have it.
#[derive(Default)]
struct Contenders {
    served: Arc<Mutex<Vec<(usize, u64)>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Contenders {
    fn add(&mut self, locks: Locks) {
        let (number, served) = (self.tasks.len(), Arc::clone(&self.served));
        self.tasks.push(tokio::spawn(async move {
            let guard = locks.acquire("door").await.unwrap();
            served.lock().unwrap().push((number, guard.fence().unwrap()));
            guard.release().await.unwrap();
        }));
    }

    /// Their numbers and fences, in the order in which they were served.
    async fn served(self) -> (Vec<usize>, Vec<u64>) {
        for task in self.tasks {
            soon("all to be served", task).await.unwrap();
        }
        self.served.lock().unwrap().iter().copied().unzip()
    }
}

#[tokio::test]
async fn waiting_clients_are_served_in_order_with_rising_fences() {
    let nodes = Nodes::start(5);
    let guard = nodes.locks().acquire("door").await.unwrap();
    let first = guard.fence().unwrap();
    let mut contenders = Contenders::default();
    for number in 1..=8 {
        contenders.add(nodes.locks());
        nodes.until_waiting("door", number).await;
    }
    guard.release().await.unwrap();
    let (order, fences) = contenders.served().await;
    assert_eq!(order, (0..8).collect::<Vec<_>>());
    assert!(
        fences[0] > first && fences.is_sorted_by(|one, next| one < next),
        "{fences:?}"
    );
    nodes.until_free("door").await;
}

#[tokio::test]
async fn waiters_of_one_client_are_served_in_order_beyond_its_connections() {
    let nodes = Nodes::start(3);
    // Without proxies, which may delay one connection more than another.
    let locks = Locks::open(nodes.servers.iter().map(Server::url)).unwrap();
    let guard = locks.acquire("door").await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let (lock, served) = (locks.lock("door"), Arc::clone(&served));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        if number < 16 {
            nodes.until_waiting("door", number + 1).await;
        } else {
            tokio::time::sleep(ms(2)).await;
        }
    }
    tokio::time::sleep(ms(50)).await;
    guard.release().await.unwrap();
    soon("all to be served", tasks.join_all()).await;
    let served = served.lock().unwrap();
    assert_eq!(*served, (0..64).collect::<Vec<_>>());
}

#[tokio::test]
async fn waiters_keep_their_order_when_the_first_server_fails() {
    let mut nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    let mut contenders = Contenders::default();
    for number in 1..=4 {
        contenders.add(nodes.locks());
        nodes.until_waiting_everywhere("door", number).await;
    }
    nodes.servers[0].kill();
    guard.release().await.unwrap();
    let (order, _) = contenders.served().await;
    assert_eq!(order, [0, 1, 2, 3]);
}

/// Each of them is the first at another server.
#[tokio::test]
async fn clients_that_hold_one_server_each_are_all_served() {
    let nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    let mut contenders = Contenders::default();
    let ways: Vec<Network> = (0..3).map(|_| nodes.behind_other_proxies()).collect();
    for (first, way) in ways.iter().enumerate() {
        for (server, proxy) in way.proxies.iter().enumerate() {
            proxy.delay(Way::ToServer, ms(if server == first { 0 } else { 100 }));
        }
        let mut urls: Vec<String> = way.proxies.iter().map(Proxy::url).collect();
        urls.rotate_left(first);
        contenders.add(Locks::open(urls.iter().map(String::as_str)).unwrap());
    }
    nodes.until_waiting_everywhere("door", 3).await;
    guard.release().await.unwrap();
    let (_, fences) = contenders.served().await;
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    nodes.until_free("door").await;
}

#[tokio::test]
async fn client_that_is_gone_in_the_doorway_delays_others_until_its_lease_expires() {
    let nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    nodes.servers[0].client().acquire("door:doorway gone 500");
    let mut contenders = Contenders::default();
    contenders.add(nodes.locks());
    nodes.until_waiting_everywhere("door", 1).await;
    nodes.until_free("door:doorway").await;
    guard.release().await.unwrap();
    contenders.served().await;
}

/// The holder has lost the first server, and keeps its majority.
#[tokio::test]
async fn waiters_are_served_in_order_while_the_holder_has_lost_the_first_server() {
    let nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    nodes.servers[0].client().send("DEL door");
    let node_timeout = NODE_TIMEOUT / 2;
    let locks = || nodes.locks_with(Settings::default().node_timeout(node_timeout));
    let mut contenders = Contenders::default();
    contenders.add(locks());
    nodes.until_waiting_elsewhere("door").await;
    for number in 1..4 {
        contenders.add(locks());
        nodes.until_waiting("door", number).await;
    }
    tokio::time::sleep(node_timeout * 3).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let (order, _) = contenders.served().await;
    assert_eq!(order, [0, 1, 2, 3]);
}

/// Their connections stay open, and nobody reads from them.
#[tokio::test]
async fn dead_waiters_cost_one_ttl_of_their_inboxes_in_all() {
    let nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    let dead: Vec<Network> = (0..6).map(|_| nodes.behind_other_proxies()).collect();
    let mut tasks = Vec::new();
    for (number, dead) in dead.iter().enumerate() {
        let lock = dead.locks().lock("door").lease(ms(2000));
        tasks.push(tokio::spawn(async move { lock.acquire().await }));
        nodes.until_waiting("door", number + 1).await;
    }
    let living = nodes.locks();
    let living = acquiring(&living, "door");
    nodes.until_waiting("door", 7).await;
    for proxy in dead.iter().flat_map(|dead| &dead.proxies) {
        proxy.freeze(Way::ToServer);
        proxy.freeze(Way::ToClient);
    }
    const TTL: Duration = ms(5000);
    let start = Instant::now();
    guard.release().await.unwrap();
    let guard = soon("the living one", living).await.unwrap().unwrap();
    assert!(start.elapsed() < TTL * 3, "{:?}", start.elapsed());
    guard.release().await.unwrap();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn waiting_request_keeps_its_place() {
    let nodes = Nodes::start(3);
    let guard = nodes.locks().acquire("door").await.unwrap();
    let locks = nodes.locks();
    let first = tokio::spawn({
        let lock = locks.lock("door").lease(ms(1000));
        async move { lock.acquire().await.unwrap() }
    });
    nodes.until_waiting("door", 1).await;
    let mut contenders = Contenders::default();
    contenders.add(nodes.locks());
    nodes.until_waiting("door", 2).await;
    let first_waiter = || nodes.servers[0].client().waiters("door")[0].owner.clone();
    let owner = first_waiter();
    // Longer than the lease that it asks for.
    tokio::time::sleep(ms(2500)).await;
    assert_eq!(first_waiter(), owner);
    guard.release().await.unwrap();
    let guard = soon("the first", first).await.unwrap();
    assert_eq!(guard.owner().to_string(), owner);
    guard.release().await.unwrap();
    contenders.served().await;
}

#[tokio::test]
async fn cancelled_acquisition_leaves_nothing_behind() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    // Waiting at the first server.
    let guard = locks.acquire("door").await.unwrap();
    nodes.until_held("door", 3).await;
    let others = nodes.locks();
    let waiting = acquiring(&others, "door");
    nodes.until_waiting("door", 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    soon("the cancellation", others.shutdown()).await;
    nodes.until_waiting("door", 0).await;
    guard.release().await.unwrap();
    nodes.until_free("door").await;
    // Waiting at the others.
    nodes.occupy([1, 2], "gate");
    let waiting = acquiring(&others, "gate");
    nodes.until_waiting_elsewhere("gate").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    soon("the cancellation", others.shutdown()).await;
    assert!(nodes.servers[0].client().find_lock("gate").is_none());
    assert!(
        nodes
            .servers
            .iter()
            .all(|server| server.client().waiting("gate") == 0)
    );
}

#[tokio::test]
async fn acquisition_dropped_at_any_time_leaves_nothing_behind() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    for us in (0..3000).step_by(100) {
        let _ = tokio::time::timeout(Duration::from_micros(us), locks.acquire("door")).await;
    }
    soon("the cancellations", locks.shutdown()).await;
    nodes.until_free("door").await;
}
