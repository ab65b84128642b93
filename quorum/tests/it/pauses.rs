//! How long a contended lock has no holder when servers fail.

use std::sync::{Arc, Mutex};

use redis_dlock_quorum::Settings;

use super::*;

const TIMEOUT: Duration = ms(300);

/// Clients that take turns, and when each of them had the lock.
struct Turns {
    granted: Arc<Mutex<Vec<Instant>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Turns {
    fn of(nodes: &Nodes, clients: usize) -> Self {
        let granted: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let tasks = (0..clients).map(|_| {
            let locks = nodes.locks_with(Settings::default().node_timeout(TIMEOUT));
            let granted = Arc::clone(&granted);
            tokio::spawn(async move {
                loop {
                    let lock = locks.lock("door").lease(ms(6_000));
                    let Ok(guard) = lock.acquire().await else {
                        continue;
                    };
                    granted.lock().unwrap().push(Instant::now());
                    tokio::time::sleep(ms(5)).await;
                    let _ = guard.release().await;
                }
            })
        });
        Self {
            tasks: tasks.collect(),
            granted,
        }
    }

    /// Waits until the lock was granted this many times more.
    async fn until_granted(&self, more: usize) {
        let count = || self.granted.lock().unwrap().len();
        let before = count();
        until("grants", || count() >= before + more).await;
    }

    /// The longest time without a grant since `start`.
    fn longest_pause_since(&self, start: Instant) -> Duration {
        let granted = self.granted.lock().unwrap();
        let after = granted
            .iter()
            .copied()
            .filter(|at| *at >= start)
            .chain([Instant::now()]);
        let times: Vec<Instant> = [start].into_iter().chain(after).collect();
        times
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or_default()
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A server has restarted and lost its queues: the places there are in another order than elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_failure_after_a_restart_pauses_the_lock_for_a_few_node_timeouts() {
    let mut nodes = Nodes::with(5, "dlock.quorum yes\nappendonly yes\nappendfsync always");
    let turns = Turns::of(&nodes, 6);
    turns.until_granted(50).await;
    nodes.servers[4].kill();
    nodes.servers[4].start_again();
    until("requests after the restart", || {
        nodes.servers[4].client().calls("dlock.acquire") > 0
    })
    .await;
    turns.until_granted(100).await;
    let start = Instant::now();
    nodes.servers[3].kill();
    tokio::time::sleep(ms(500)).await;
    nodes.servers[0].kill();
    turns.until_granted(100).await;
    let pause = turns.longest_pause_since(start);
    println!("{pause:?}");
    assert!(pause < TIMEOUT * 3 + ms(600), "{pause:?}");
}
