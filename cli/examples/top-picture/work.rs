use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Client, Server};

/// Clients that want locks, as those of a shop might.
pub struct Work {
    is_over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

/// Who wants which lock how (owners of several jobs would be one owner), and for how long it is held and left alone, in milliseconds.
struct Job {
    workers: u64,
    owner: &'static str,
    request: &'static str,
    lock: &'static str,
    held_ms: u64,
    between_ms: u64,
}

const JOBS: [Job; 9] = [
    job(9, "web", "30000 BLOCK 5000", "stock:sku-1042", 30, 60),
    job(6, "app", "30000 BLOCK 5000", "stock:sku-77", 45, 150),
    job(4, "billing", "30000 BLOCK 2000", "payments:acct-5521", 140, 300),
    job(3, "invoicer", "30000 BLOCK 400", "invoices:2026-11", 350, 250),
    job(5, "carrier", "20000 LIMIT 3 BLOCK 0", "carrier-api", 220, 200),
    job(4, "reader", "60000 SHARED BLOCK 0", "catalogue", 700, 60),
    job(1, "importer", "60000 BLOCK 0", "catalogue", 300, 2500),
    job(2, "mailer", "15000 BLOCK 0", "newsletter:42", 900, 30),
    job(
        1,
        "host-3.nightly-report",
        "1800000",
        "nightly-report",
        600_000,
        0,
    ),
];

const fn job(
    workers: u64,
    owner: &'static str,
    request: &'static str,
    lock: &'static str,
    held_ms: u64,
    between_ms: u64,
) -> Job {
    Job {
        workers,
        owner,
        request,
        lock,
        held_ms,
        between_ms,
    }
}

impl Work {
    pub fn start(server: &Server) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for job in &JOBS {
            for n in 1..=job.workers {
                let (client, is_over) = (server.client(), Arc::clone(&is_over));
                let owner = if job.workers == 1 {
                    job.owner.to_owned()
                } else {
                    format!("{}-{n}", job.owner)
                };
                workers.push(thread::spawn(move || job.work(client, &owner, n, &is_over)));
            }
        }
        Self { is_over, workers }
    }

    pub fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.join().expect("no worker fails");
        }
    }
}

impl Job {
    fn work(&self, mut client: Client, owner: &str, seed: u64, is_over: &AtomicBool) {
        let mut random = seed;
        let mut some = |ms: u64| {
            // Between half of it and one and a half; any sequence that is no pattern will do.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            ms / 2 + (random >> 33) % (ms + 1)
        };
        while !is_over.load(Ordering::Relaxed) {
            if client
                .try_acquire(&format!("{} {owner} {}", self.lock, self.request))
                .is_some()
            {
                pause_unless(is_over, some(self.held_ms));
                client.release(&format!("{} {owner}", self.lock));
            }
            pause_unless(is_over, some(self.between_ms));
        }
    }
}

fn pause_unless(is_over: &AtomicBool, ms: u64) {
    const STEP_MS: u64 = 50;
    let mut left_ms = ms;
    while left_ms > 0 && !is_over.load(Ordering::Relaxed) {
        let step_ms = left_ms.min(STEP_MS);
        thread::sleep(Duration::from_millis(step_ms));
        left_ms -= step_ms;
    }
}
