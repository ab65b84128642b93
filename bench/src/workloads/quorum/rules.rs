//! The locks that are compared.

use std::time::Duration;

use redis_dlock_client as client;
use redis_dlock_quorum as dlock;

use super::clients::{Clients, clients, runtime};
use super::majority::{self, NODE_TIMEOUT, REDLOCK, REDSYNC};
use super::nodes::{Situation, median_url};
use crate::error::Result;
use crate::implementations::async_lock::AsyncLock;
use crate::results::DLOCK;

pub const LEASE: Duration = Duration::from_secs(30);

pub struct Rule {
    pub name: &'static str,
    /// In which it is measured.
    pub situations: &'static [Situation],
    /// Opens clients of the servers, by the keys of their locks.
    open: fn(&[String], &[String]) -> Result<Clients>,
}

/// Ours, what it is compared with, and the peers.
pub const RULES: [Rule; 4] = [
    Rule {
        name: DLOCK,
        situations: &Situation::ALL,
        open: |urls, keys| {
            let settings = dlock::Settings::default().node_timeout(NODE_TIMEOUT);
            let locks = dlock::Locks::with(urls.iter().map(String::as_str), settings)?;
            clients(keys, &runtime()?, |key| Quorum {
                lock: locks.lock(key).lease(LEASE),
                guard: None,
            })
        },
    },
    Rule {
        name: "one server",
        situations: &[Situation::ALL_UP],
        open: |urls, keys| {
            let locks = client::Locks::open(median_url(urls)?)?;
            clients(keys, &runtime()?, |key| One {
                lock: locks.lock(key).lease(LEASE),
                guard: None,
            })
        },
    },
    Rule {
        name: "Redlock",
        situations: ANY_FAULT,
        open: |urls, keys| majority::open(urls, keys, &REDLOCK),
    },
    Rule {
        name: "redsync",
        situations: ANY_FAULT,
        open: |urls, keys| majority::open(urls, keys, &REDSYNC),
    },
];

/// Peers ask all servers at once: the last one is as good as the first.
const ANY_FAULT: &[Situation] = &{
    let [all_up, stopped, killed, ..] = Situation::ALL;
    [all_up, stopped, killed]
};

/// Opens the clients of one process, which share its connections.
pub fn open(rule: &str, urls: &[String], keys: &[String]) -> Result<Clients> {
    let rule = RULES.iter().find(|known| known.name == rule);
    (rule.ok_or("no such rule")?.open)(urls, keys)
}

/// A lock on a majority.
struct Quorum {
    lock: dlock::Lock,
    guard: Option<dlock::Guard>,
}

impl AsyncLock for Quorum {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self.guard.take().ok_or("not held")?.release().await {
            // On a busy machine. It goes on in the background.
            Err(dlock::Error::NoQuorum(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

/// A lock on the server in the middle.
struct One {
    lock: client::Lock,
    guard: Option<client::Guard>,
}

impl AsyncLock for One {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.guard.take().ok_or("not held")?.release().await?;
        Ok(())
    }
}
