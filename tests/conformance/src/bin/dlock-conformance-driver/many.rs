//! Many locks, one after the other or at once.

use std::time::{Duration, Instant};

use redis_dlock_client::{Error, Guard, Locks};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_local};

use crate::options;
use crate::outcome::failure;

/// Nobody listens there.
const NOWHERE: &str = "redis://127.0.0.1:1/";
/// For an acquisition that must fail.
const SHORT: Duration = Duration::from_millis(50);

/// `churn`: new locks on new clients, each used once and dropped, as a careless program does.
pub async fn churn(address: &str, command: &Value) -> Value {
    let fails = command["fails"] == true;
    let address = if fails { NOWHERE } else { address };
    let client = redis::Client::open(address).expect("the kit passes a valid address");
    let key = command["key"].as_str().expect("a lock has a key");
    for _ in 0..command["times"].as_u64().unwrap_or_default() {
        let opened = match command["same_client"] == true {
            true => Locks::open(client.clone()),
            false => Locks::open(address),
        };
        let outcome = use_once(opened.expect("the system has what a client needs"), key, fails).await;
        match outcome {
            Err(error) if !fails => return failure(&error),
            Ok(()) if fails => return json!({"error": "GRANTED"}),
            _ => {}
        }
    }
    json!({"ok": true})
}

async fn use_once(locks: Locks, key: &str, fails: bool) -> Result<(), Error> {
    let lock = locks.lock(key);
    let lock = if fails { lock.timeout(SHORT) } else { lock };
    lock.acquire().await?.release().await
}

/// Locks that are held together.
#[derive(Default)]
pub struct Many(Vec<Guard>);

impl Many {
    /// `hold_many`
    pub async fn hold(locks: &Locks, command: &Value) -> (Self, Value) {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        let lease = options::time(&command["lease_ms"]).expect("a time in milliseconds");
        let start = Instant::now();
        let acquiring = (0..command["locks"].as_u64().unwrap_or_default()).map(|n| {
            let lock = locks.lock(format!("{prefix}{n}")).lease(lease);
            spawn_local(async move { lock.acquire().await })
        });
        let acquiring: Vec<JoinHandle<_>> = acquiring.collect();
        let mut many = Self::default();
        for acquiring in acquiring {
            many.0.extend(acquiring.await.ok().and_then(Result::ok));
        }
        let held = json!({"held": many.0.len(), "took_ms": start.elapsed().as_millis() as u64});
        (many, held)
    }

    /// `release_many`
    pub async fn release(self) -> Value {
        let releasing = self.0.into_iter().map(|guard| spawn_local(guard.release()));
        let releasing: Vec<JoinHandle<_>> = releasing.collect();
        let (mut released, mut lost) = (0, 0);
        for releasing in releasing {
            match releasing.await {
                Ok(Ok(())) => released += 1,
                _ => lost += 1,
            }
        }
        json!({"released": released, "lost": lost})
    }
}
