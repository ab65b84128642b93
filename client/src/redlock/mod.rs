//! Locks on a majority of several independent servers: Redlock.
//!
//! A lock on one server is gone when that server is. A lock on most of several servers, which share nothing
//! and do not replicate each other, outlives the loss of the others: of five servers, two may fail. The
//! names and the rules are those of [`Locks`](crate::Locks) and [`Guard`](crate::Guard).
//!
//! ```no_run
//! use redis_dlock_client::redlock;
//!
//! # async fn work() -> Result<(), redis_dlock_client::Error> {
//! let servers = ["redis://10.0.0.1/", "redis://10.0.1.1/", "redis://10.0.2.1/"];
//! let locks = redlock::Locks::open(servers)?;
//! let guard = locks.acquire("orders:42").await?;
//! // ... as long as guard.is_held()
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What is promised
//!
//! - All servers are asked at once. The lock is held when n/2 + 1 of n agreed and their leases have not
//!   ended; whatever the others do, there can be no second such majority. The answer comes as soon as it is
//!   certain, a slow server is not waited for. What it grants late joins the lock, or is given back in the
//!   background when there is no lock.
//! - A lease counts from before it was asked for, less a hundredth of it and 2 ms, for the clocks of several
//!   machines. [`Guard::remaining`] is the time until too few leases last.
//! - Each server's lease is renewed by itself. [`Guard::lost`] fires when too few servers are left.
//! - An even number of servers is allowed, but not better than one less: of four, only one may fail.
//!
//! # What is not
//!
//! - **No fencing token.** Each server numbers its own grants. The largest of the numbers that a majority
//!   gave does not rise: let servers A, B and C stand at 9, 4 and 2. One holder gets 10 from A and 5 from B,
//!   so its largest is 10; the next one gets 6 from B and 3 from C, and its largest is 6. A resource that
//!   refuses smaller tokens would refuse the rightful holder. Where the resource can check a token, use a
//!   lock on one server, with replicas.
//! - **No queue.** Each try asks anew, after a pause of random length; who comes first is chance.
//! - **No re-entry.** Each acquisition has an owner of its own.
//! - **No semaphore.** Two majorities have a server in common, but three need not have one: each of the
//!   servers would keep to its limit, and all of them together would not.
//! - A server that forgets its locks when it is started again, for it keeps no log, must stay away for as long as
//!   the longest lease: until then it could grant to others what it had granted before
//!   (`dlock.startup-grace-ms -1` of the server does that).
//!
//! Events and the log are those of each server, which they name.

mod acquire;
mod error;
mod guard;
mod held;
mod hold;
mod locks;
mod quorum;
mod round;
#[cfg(test)]
mod tests;

pub use error::{NoQuorum, NodeFailure};
pub use guard::Guard;
pub use locks::{Lock, Locks};
