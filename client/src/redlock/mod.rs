//! Locks on a majority of several independent servers: Redlock.
//!
//! A lock on one server is lost with that server. A lock on a majority of independent servers, which do not replicate
//! each other, survives the loss of a minority: of five servers, two may fail. Names and rules are those of
//! [`Locks`](crate::Locks) and [`Guard`](crate::Guard).
//!
//! ```no_run
//! use redis_dlock_client::redlock;
//!
//! # async fn work() -> Result<(), redis_dlock_client::Error> {
//! let servers = ["redis://10.0.0.1/", "redis://10.0.1.1/", "redis://10.0.2.1/"];
//! let locks = redlock::Locks::open(servers)?;
//! let guard = locks.acquire("orders:42").await?;
//! // ... while guard.is_held()
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - All servers are asked at once. The lock is held when n/2 + 1 of n agreed and their leases have not expired; there
//!   can be no second majority. The outcome is returned as soon as it is certain, without waiting for slow servers. What
//!   they grant late joins the lock, or is released in the background.
//! - A lease counts from before the request was sent, minus 1 % and 2 ms, for clock drift between several machines.
//!   [`Guard::remaining`] is the time until too few leases are left.
//! - Each server's lease is renewed on its own. [`Guard::lost`] resolves when too few servers are left.
//! - An even number of servers is allowed, but no better than one less: of four, only one may fail.
//!
//! # Limits
//!
//! - **No fencing token.** Each server numbers its own grants, and the largest number of a majority does not increase:
//!   let the counters of servers A, B and C be 9, 4 and 2. One holder gets 10 from A and 5 from B, so its largest is 10;
//!   the next one gets 6 from B and 3 from C, and its largest is 6. A resource that rejects smaller tokens would reject
//!   the rightful holder. If the resource can check a token, use a lock on one server, with replicas.
//! - **No queue.** Each attempt starts over after a random pause; the order is random.
//! - **No re-entry.** Each acquisition has a unique owner.
//! - **No semaphore.** Two majorities have a server in common, but three need not: each server would respect its limit,
//!   but all of them together would not.
//! - A server without persistence that restarts must grant nothing for the longest lease, or it could grant again what
//!   it had granted before (`dlock.startup-grace-ms -1` does that).
//!
//! Events and log messages name their server.

mod acquire;
mod guard;
mod held;
mod hold;
mod locks;
mod quorum;
mod round;
#[cfg(test)]
mod tests;

pub use crate::error::{NoQuorum, NodeFailure};
pub use guard::Guard;
pub use locks::{Lock, Locks};
