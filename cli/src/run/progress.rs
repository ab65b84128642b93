//! Tells a user on a terminal what the lock is waiting for.

use std::convert::Infallible;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use redis_dlock_client::{LockInfo, WaiterInfo};
use tokio::time::sleep;

use super::lock::{Locks, Request};
use crate::duration;
use crate::jobctl::StderrSender;
use crate::text::display_name;

/// A shorter wait is not worth a message.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(5);

/// Prints what the lock waits for, once, and whenever the server becomes unreachable or reachable.
pub async fn report<L: Locks>(locks: &L, request: &Request<'_>, sender: &StderrSender) -> Infallible {
    if request.args.quiet || !stderr().is_terminal() {
        return std::future::pending().await;
    }
    let name = display_name(request.name());
    let mut was_reachable = None;
    sleep(DELAY).await;
    loop {
        let info = locks.info(request).await;
        if was_reachable != Some(info.is_ok()) {
            was_reachable = Some(info.is_ok());
            sender.print(match info {
                Ok(info) => {
                    let ahead = |info: &LockInfo| holders(info, waiters_ahead(request, info), "ahead");
                    format!(
                        "waiting for {name}{}",
                        info.as_ref().map_or_else(String::new, ahead)
                    )
                }
                Err(error) => format!("waiting for {name}: {error}"),
            });
        }
        sleep(INTERVAL).await;
    }
}

/// `: held by web-3:2211 for 12s, 2 waiting`. Empty without permission for DLOCK.INFO.
pub async fn describe<L: Locks>(locks: &L, request: &Request<'_>) -> String {
    match locks.info(request).await {
        Ok(Some(info)) => holders(&info, info.waiting, "waiting"),
        _ => String::new(),
    }
}

/// How many requests are queued before this one. All if it is not among those that the server lists.
fn waiters_ahead(request: &Request<'_>, info: &LockInfo) -> u64 {
    let is_own = |waiter: &WaiterInfo| waiter.owner == request.owner;
    let position = info.waiters.iter().position(is_own);
    position.map_or(info.waiting, |position| position as u64)
}

fn holders(info: &LockInfo, count: u64, which: &str) -> String {
    let mut text = String::new();
    if let Some((holder, others)) = info.holders.split_first() {
        let owner = display_name(holder.owner.as_bytes());
        text += &format!(": held by {owner} for {}", duration::format(holder.held));
        if !others.is_empty() {
            text += &format!(" and {} others", others.len());
        }
    }
    if count > 0 {
        text += &format!(", {count} {which}");
    }
    text
}
